#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether tests/faults is whole: every fault applies, every barrier and fence of the kernels has a fault that takes it
away, every fault class has faults or a reason in docs/fault-classes.md why not. Then its own planted failures: copies
of the sources, each wrong in one place, that must be told. usage: test_fault_library.py SOURCE_DIR"""
import json
import os
import re
import shutil
import sys
import tempfile

BARRIERS = ('__syncthreads', '__syncthreads_or', '__syncthreads_and', '__syncthreads_count', '__syncwarp',
            'plumb_grid_sync', 'plumb_cluster_sync')
FENCES = ('__threadfence', '__threadfence_block', 'plumb_grid_dependency_wait', 'plumb_grid_dependency_wait_plain',
          'plumb_copy_commit', 'plumb_copy_wait')
CALL = re.compile(r'(?<!\w)(%s)\s*(?:<[^<>()]*>\s*)?\(' % '|'.join(sorted(BARRIERS + FENCES, key=len, reverse=True)))
CLASSES = ['F%02d' % i for i in range(1, 31)]
KINDS = {'fault': (), 'barrier': BARRIERS, 'fence': FENCES}
REQUIRED = ('id', 'class', 'op', 'file', 'find', 'replace', 'why')
OPTIONAL = ('kind', 'in', 'race', 'tests', 'lane', 'lane_why', 'equivalent')
NOT_A_LIBRARY = ('targets.json', 'equivalent.json')  # of the runner


def read(path):
    with open(path, encoding='ascii') as file:
        return file.read()


def without_comments(text):
    """The same length and lines: comments are blanks."""
    def blank(match):
        return re.sub(r'[^\n]', ' ', match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)


def ops_of(source):
    return set(re.findall(r'^\tOP\([A-Z_]+, ([a-z_]+),', read(source + '/core/op.c'), re.M))


class Library:
    def __init__(self, source):
        self.source, self.errors, self.faults, self.text = source, [], [], {}
        kernels = source + '/kernels'
        for name in sorted(os.listdir(kernels)):
            if name.endswith(('.cu', '.h')):
                self.text['kernels/' + name] = read(kernels + '/' + name)
        self.code = {file: without_comments(text) for file, text in self.text.items()}
        self.ops = ops_of(source)
        for name in sorted(os.listdir(source + '/tests/faults')):
            if name.endswith('.json') and name not in NOT_A_LIBRARY:
                self.read_file(name)
        self.check_ids()
        self.check_sites()
        self.check_page()

    def error(self, text):
        self.errors.append(text)

    def read_file(self, name):
        path = 'tests/faults/' + name
        try:
            tree = json.loads(read(self.source + '/' + path))
            faults = tree['faults']
        except (ValueError, KeyError, TypeError) as problem:
            self.error('%s: not a library file: %r' % (path, problem))
            return
        if tree.get('format') != 'plumb faults 1':
            self.error("%s: format is %r, expected 'plumb faults 1'" % (path, tree.get('format')))
        for fault in faults:
            self.read_fault(path, fault)

    def read_fault(self, path, fault):
        who = '%s: %s' % (path, fault.get('id'))
        wrong = [key for key in REQUIRED if not isinstance(fault.get(key), str)]
        wrong += [key for key in fault if key not in REQUIRED + OPTIONAL]
        if wrong:
            self.error('%s: %s is missing, no text, or no field' % (who, ', '.join(wrong)))
            return
        file, base = fault['file'], os.path.basename(fault['file']).split('.')[0]
        if fault['class'] not in CLASSES:
            self.error('%s: class is %s, expected F01 to F30' % (who, fault['class']))
        if fault['op'] not in self.ops:
            self.error('%s: op is %s, which is none' % (who, fault['op']))
        if fault.get('kind', 'fault') not in KINDS:
            self.error('%s: kind is %s, expected %s' % (who, fault['kind'], ', '.join(KINDS)))
            return
        if path != 'tests/faults/%s.json' % base or file not in self.text:
            self.error('%s: is of file %s, expected one of kernels/ called %s' % (who, file, os.path.basename(path)))
            return
        if len(fault['why']) < 15 or fault['why'].endswith('.'):
            self.error('%s: why is %r, expected a line that says what goes wrong' % (who, fault['why']))
        for key in ('equivalent', 'lane'):
            if key in fault and len(fault.get('lane_why', fault['why']) if key == 'lane' else fault[key]) < 40:
                self.error('%s: %s without a reason' % (who, key))
        self.place(who, fault)

    def place(self, who, fault):
        text, start = self.text[fault['file']], 0
        if 'in' in fault:
            if text.count(fault['in']) != 1:
                self.error("%s: does not apply: 'in' occurs %d times in %s" %
                           (who, text.count(fault['in']), fault['file']))
                return
            start = text.index(fault['in'])
        elif text.count(fault['find']) != 1:
            self.error("%s: does not apply: 'find' occurs %d times in %s" %
                       (who, text.count(fault['find']), fault['file']))
            return
        at = text.find(fault['find'], start)
        if at < 0:
            self.error("%s: does not apply: 'find' is not behind 'in' in %s" % (who, fault['file']))
            return
        end = at + len(fault['find'])
        if without_comments(fault['find']).split() == without_comments(fault['replace']).split():
            self.error('%s: changes nothing' % who)
        kind = fault.get('kind', 'fault')
        calls = [m.group(1) for m in CALL.finditer(self.code[fault['file']][at:end])]
        kept = [m.group(1) for m in CALL.finditer(fault['replace'])]
        if kind != 'fault' and (len(calls) != 1 or calls[0] not in KINDS[kind] or kept):
            self.error('%s: a %s must take away one: it finds %s and leaves %s' % (who, kind, calls, kept))
        if kind != 'fault' and kind == 'barrier' and not (fault.get('race') or fault.get('tests')):
            self.error('%s: a barrier is for the race build too' % who)
        self.faults.append((fault, at, end))

    def check_ids(self):
        ids, places = {}, {}
        for fault, at, _ in self.faults:
            key = (fault['file'], at, fault['find'], fault['replace'], fault['op'])
            if fault['id'] in ids:
                self.error('%s: the id of two faults' % fault['id'])
            if key in places:
                self.error('%s: the same as %s' % (fault['id'], places[key]))
            if not re.fullmatch(r'[a-z0-9]+(-[a-z0-9]+)+', fault['id']):
                self.error('%s: an id is words of small letters and digits, with hyphens between' % fault['id'])
            ids[fault['id']], places[key] = fault, fault['id']

    def check_sites(self):
        """Every barrier and fence is in a fault of its kind, or in uncovered.txt: FILE, TAB, a piece of its line or *, TAB, why."""
        self.sites = self.listed = 0
        listed = []
        for number, line in enumerate(read(self.source + '/tests/faults/uncovered.txt').split('\n'), 1):
            if line and not line.startswith('#'):
                field = line.split('\t')
                if len(field) != 3 or len(field[2]) < 20:
                    self.error('uncovered.txt:%d: expected a file, a piece of the line or *, and a reason' % number)
                else:
                    listed.append([number, field, 0])
        for file, text in self.text.items():
            for match in CALL.finditer(self.code[file]):
                line = text[text.rfind('\n', 0, match.start()) + 1:text.index('\n', match.start())]
                kind = 'barrier' if match.group(1) in BARRIERS else 'fence'
                self.sites += 1
                covered = [fault['id'] for fault, at, end in self.faults
                           if fault['file'] == file and fault.get('kind') == kind and at <= match.start() < end]
                excused = [entry for entry in listed if entry[1][0] == file and (entry[1][1] == '*' or entry[1][1] in line)]
                for entry in excused:
                    entry[2] += 1
                self.listed += bool(excused) and not covered
                if not covered and not excused:
                    self.error('%s:%d: %s has no fault that takes it away: add one of kind %s to tests/faults' %
                               (file, text.count('\n', 0, match.start()) + 1, match.group(1), kind))
        for number, field, used in listed:
            if not used:
                self.error('uncovered.txt:%d: names nothing in %s' % (number, field[0]))

    def check_page(self):
        """docs/fault-classes.md has a row for every class; the ids in it exist and are of that class."""
        page, by_id = read(self.source + '/docs/fault-classes.md'), {fault['id']: fault for fault, _, _ in self.faults}
        for name in CLASSES:
            rows = re.findall(r'^\| %s \|.*$' % name, page, re.M)
            planted = [fault for fault in by_id.values() if fault['class'] == name]
            if len(rows) != 1:
                self.error('docs/fault-classes.md: %d rows for %s, expected one' % (len(rows), name))
                continue
            named = re.findall(r'`([a-z0-9]+(?:-[a-z0-9]+)+)`', rows[0].rsplit('|', 2)[1])
            for identity in named:
                if by_id.get(identity, {}).get('class') != name:
                    self.error('docs/fault-classes.md: %s: no fault of that class is called %s' % (name, identity))
            if not named and 'does not apply' not in rows[0]:
                self.error('docs/fault-classes.md: %s: names no fault, nor says that it does not apply' % name)
            if planted and not named:
                self.error('docs/fault-classes.md: %s: there are faults, and none is named' % name)
            if not planted and named:
                self.error('docs/fault-classes.md: %s: nothing is planted' % name)


def edited(path, old, new):
    text = read(path)
    assert text.count(old) >= 1, (path, old)
    with open(path, 'w', encoding='ascii') as file:
        file.write(text.replace(old, new, 1))


def add_fault(path, **fields):
    tree = json.loads(read(path))
    tree['faults'].append({**tree['faults'][0], **fields})
    with open(path, 'w', encoding='ascii') as file:
        json.dump(tree, file)


# What is done to a copy of the sources, and what must then be said.
PLANTED = [
    (lambda s: edited(s + '/kernels/ple.cu', 'a.row[h] = r;', 'a.row[h] = r;\n\t\t__syncwarp();'),
     'kernels/ple.cu:46: __syncwarp has no fault'),
    (lambda s: edited(s + '/kernels/lm_head.cu', '*token = best', '__threadfence();\n\t*token = best'),
     '__threadfence has no fault'),
    (lambda s: edited(s + '/kernels/linear.cu', 'plumb_copy_wait<0>();', 'plumb_copy_wait<0>();\n\t\tplumb_copy_wait<2>();'),
     'plumb_copy_wait has no fault'),
    (lambda s: edited(s + '/kernels/moe.cu', 'slot += rank[i] > key;', 'slot += key < rank[i];'),
     "moe-router-tie: does not apply: 'find' occurs 0 times"),
    (lambda s: edited(s + '/kernels/moe.cu', 'if (apart >= 32)', 'if (apart > 31)'), "'in' occurs 0 times"),
    (lambda s: edited(s + '/kernels/embed.cu', 'if (c < hidden) {', 'if (c < hidden) {}\n\tif (c < hidden) {'),
     "embed-tail: does not apply: 'find' occurs 2 times"),
    (lambda s: add_fault(s + '/tests/faults/moe.json'), 'the id of two faults'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-again'), 'moe-again: the same as'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-x', **{'class': 'F31'}), 'class is F31'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-x', op='moe'), 'op is moe, which is none'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-x', file='kernels/none.cu'), 'expected one of kernels/'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-x', equivalent='harmless'), 'equivalent without a reason'),
    (lambda s: add_fault(s + '/tests/faults/moe.json', id='moe-x', note='?'), 'note is missing, no text, or no field'),
    (lambda s: add_fault(s + '/tests/faults/ple.json', id='ple-x', find='float sum = 0.0f;', replace='float sum = 0.0f; /* */'),
     'ple-x: changes nothing'),
    (lambda s: add_fault(s + '/tests/faults/ple.json', id='ple-x', kind='barrier', race=True), 'must take away one'),
    (lambda s: edited(s + '/tests/faults/ple.json', '"kind": "barrier"', '"kind": "fault"'),
     '__syncthreads has no fault'),
    (lambda s: edited(s + '/tests/faults/uncovered.txt', 'kernels/device.h\t*', 'kernels/ple.h\t*'), 'names nothing'),
    (lambda s: edited(s + '/docs/fault-classes.md', '| F13 |', '| F3 |'), '0 rows for F13'),
    (lambda s: edited(s + '/docs/fault-classes.md', '`moe-router-tie`', '`moe-router-tiger`'), 'is called moe-router-tiger'),
    (lambda s: os.remove(s + '/tests/faults/ple.json'), '__syncthreads has no fault'),
    (lambda s: edited(s + '/tests/faults/ple.json', '"faults": [', '"faults": [}'), 'not a library file'),
]


def self_test(source):
    failures = 0
    for number, (plant, told) in enumerate(PLANTED):
        copy = tempfile.mkdtemp()
        try:
            for part in ('kernels', 'tests/faults'):
                shutil.copytree('%s/%s' % (source, part), '%s/%s' % (copy, part))
            for part in ('core/op.c', 'docs/fault-classes.md'):
                os.makedirs(os.path.dirname('%s/%s' % (copy, part)))
                shutil.copy('%s/%s' % (source, part), '%s/%s' % (copy, part))
            plant(copy)
            errors = Library(copy).errors
            if not any(told in error for error in errors):
                print('planted failure %d: expected %r, told %r' % (number, told, errors[:3]))
                failures += 1
        finally:
            shutil.rmtree(copy)
    return failures


def main():
    source = sys.argv[1]
    library = Library(source)
    for error in library.errors:
        print(error)
    if library.errors:
        return 1
    print('%d faults, %d barriers and fences, %d of them listed with a reason; %d planted failures of the library' %
          (len(library.faults), library.sites, library.listed, len(PLANTED)))
    return 1 if self_test(source) else 0


if __name__ == '__main__':
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the pages say, done: every fenced block of README.md, docs/*.md and the like is executed and its output compared.

usage: test_pages.py SOURCE_DIR BUILD_DIR PAGE...        pages relative to SOURCE_DIR
       test_pages.py --fresh SOURCE_DIR PAGE             in a copy of the tree without a build, as somebody new would; prints times

A page is one shell in a folder that holds the tree and its build. Its fences are
  console    '$ command' lines, each with the output that must follow ('\\' at its end continues a command). A line '...' stands
             for any lines, '...' in a line for any text. Times are not compared (0.12 s), nor is the number of blanks.
  sh         commands, one a line; each must succeed
  text       not run: must not look like commands
  others     a source, written to the file that file=NAME says
and words after the language are status=N,... (of the block's last commands; 0), file=NAME, needs=h5py,gpu,nvcc,parallel (not run where that is
missing) and norun="why" (not run at all). Beside that every name of a file or test, every link, and in code every plumb command
with its options must exist. It judges pages of its own first, right and wrong ones.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

TREE = ("core", "ref", "kernels", "opt", "golden", "tests", "tools", "docs", "cmake")
TIME = re.compile(r"\b\d+(\.\d+)?(e[+-]\d+)? ?(s|ms|us|min|sec)\b")
MARK = "--page-mark-"
OTHERS = "<!-- pages: paths of other repositories -->"


class Block:
    def __init__(self, line, info):
        words = shlex.split(info)
        self.line, self.language, self.text = line, words[0] if words else "", []
        self.attributes = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        self.odd = [w for w in words[1:] if "=" not in w] + [k for k in self.attributes if k not in ("status", "file", "needs", "norun")]


class Command:
    def __init__(self, line, text, status, expected):
        self.line, self.text, self.status, self.expected = line, text, status, expected


def blocks_of(text, say):
    """The fenced blocks of a page, and its prose (line, text)."""
    blocks, prose, block = [], [], None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            if block is None:
                block = Block(number, line[3:])
                if not block.language or block.odd:
                    say(number, f"a fence '{line}': expected a language, then status=, file=, needs= or norun=")
            else:
                blocks.append(block)
                block = None
        elif block is not None:
            block.text.append(line)
        else:
            if re.match(r"( {4}|\t)\S", line) and not re.match(r"\s*([-*]|\d+\.) ", line):
                say(number, "an indented block: only fenced ones are tested")
            prose.append((number, line))
    if block is not None:
        say(block.line, "a fence that is not closed")
    return blocks, prose


def logical_lines(block):
    """(line number, text) of a block, lines that end in a backslash joined with the next."""
    joined, start = "", 0
    for number, line in enumerate(block.text, block.line + 1):
        start = start or number
        joined += line
        if line.endswith("\\"):
            joined += "\n"
            continue
        yield start, joined
        joined, start = "", 0
    if joined:
        yield start, joined


def commands_of(block, say):
    commands = []
    if block.language == "sh":
        for number, text in logical_lines(block):
            if text.strip() and not text.startswith("#"):
                commands.append(Command(number, text, 0, None))
    else:
        for number, text in logical_lines(block):
            if text.startswith("$ "):
                commands.append(Command(number, text[2:], 0, []))
            elif commands:
                commands[-1].expected += text.split("\n")
            else:
                say(number, "output before the first '$ command'")
    statuses = [int(n) for n in block.attributes.get("status", "").split(",") if n]
    for command, status in zip(reversed(commands), reversed(statuses)):
        command.status = status
    return commands


def matches(expected, said):
    """None, or the first expected line that is not there in its place."""

    def plain(line):
        return TIME.sub(r"# \3", " ".join(line.split()))

    def line_matches(pattern, line):
        return re.fullmatch(".*".join(re.escape(part) for part in plain(pattern).split("...")), line) is not None

    said = [plain(line) for line in said]
    while said and not said[-1]:
        said.pop()
    expected = list(expected)
    while expected and not expected[-1].strip():
        expected.pop()
    at, free = 0, False
    groups, group = [], []
    for line in expected:
        if line.strip() == "...":
            groups.append((group, free))
            group, free = [], True
        else:
            group.append(line)
    groups.append((group, free))
    for index, (group, free) in enumerate(groups):
        last = index == len(groups) - 1
        starts = range(at, len(said) - len(group) + 1) if free else [at]
        if free and last and group:
            starts = [len(said) - len(group)] if len(said) - len(group) >= at else []
        best, found = 0, None
        for start in starts:
            n = 0
            while n < len(group) and start + n < len(said) and line_matches(group[n], said[start + n]):
                n += 1
            best = max(best, n)
            if n == len(group):
                found = start
                break
        if found is None:
            return group[best] if best < len(group) else "(the end)"
        at = found + len(group)
        if last and group and at != len(said):
            return "(the end)"
        if last and not group and not free and at != len(said):
            return "(the end)"
    return None


def has(need, plumb):
    if need == "h5py":
        return subprocess.run([sys.executable, "-c", "import h5py, numpy"], stderr=subprocess.DEVNULL).returncode == 0
    if need in ("nvcc", "parallel"):
        return shutil.which(need) is not None
    if need == "gpu":
        return subprocess.run([plumb, "run", "--synthetic", "tiny", "--tokens", "1", "--steps", "1", "--set", "opt", "--device", "cuda"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    raise ValueError(need)


class Place:
    """A folder that looks like a fresh clone with its build in build/release."""

    def __init__(self, source, build):
        self.source, self.build, self.plumb = source, build, os.path.join(build, "tools", "plumb") if build else "plumb"
        self.root = tempfile.mkdtemp(prefix="plumb-pages-")
        self.bin = os.path.join(self.root, "bin")
        tree = os.path.join(self.root, "tree")
        os.makedirs(self.bin)
        os.makedirs(tree)
        for name in sorted(os.listdir(source)):
            path = os.path.join(source, name)
            if name in TREE:
                shutil.copytree(path, os.path.join(tree, name), symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            elif os.path.isfile(path):
                shutil.copy(path, tree)
        self.tree = tree
        if build: # what a preset would build is there already; every other use of cmake is the real one's
            real = shutil.which("cmake")
            with open(os.path.join(self.bin, "cmake"), "w") as f:
                f.write(f'#!/bin/sh\ncase " $* " in *" --preset "*) exit 0 ;; esac\nexec {real} "$@"\n')
            os.chmod(os.path.join(self.bin, "cmake"), 0o755)

    def folder(self, name):
        """A work folder of a page: links to the copy, so what one page writes beside them another does not find."""
        work = os.path.join(self.root, name.replace("/", "-"))
        os.makedirs(work)
        for entry in os.listdir(self.tree):
            os.symlink(os.path.join(self.tree, entry), os.path.join(work, entry))
        if self.build:
            os.makedirs(os.path.join(work, "build"))
            os.symlink(self.build, os.path.join(work, "build", "release"))
        return work

    def remove(self):
        shutil.rmtree(self.root)


def execute(place, work, commands, files, on_path, timeout):
    """Runs the commands in one shell: [(status, output lines, seconds) or None if the shell ended before]."""
    script = ["cd " + shlex.quote(work)]
    for index, item in enumerate(commands):
        if isinstance(item, tuple): # a file
            name, content = item
            source = os.path.join(files, str(index))
            with open(source, "w") as f:
                f.write("\n".join(content) + "\n")
            script.append(f"mkdir -p {shlex.quote(os.path.dirname(name) or '.')} && cp {shlex.quote(source)} {shlex.quote(name)}")
        else:
            script.append(f"echo; echo {MARK}{index} $(date +%s.%N)\n{item.text}\npage_status=$?\necho; echo {MARK}end {index} $page_status $(date +%s.%N)")
    environment = dict(os.environ, LC_ALL="C", OPENBLAS_CORETYPE=os.environ.get("OPENBLAS_CORETYPE", "Haswell"), NO_COLOR="1",
                       OMP_WAIT_POLICY="passive", HOME=work)
    for name in ("CMAKE_PREFIX_PATH", "CLICOLOR_FORCE"):
        environment.pop(name, None)
    environment["PATH"] = os.pathsep.join([place.bin] + ([os.path.dirname(place.plumb)] if on_path else []) + [environment["PATH"]])
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, text=True, errors="replace")
        try:
            process.communicate("\n".join(script) + "\n", timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        out.seek(0)
        said = out.read().split("\n")
    results, current, start, lines = {}, None, 0.0, []
    for line in said:
        words = line.split()
        if line.startswith(MARK + "end "):
            if lines and lines[-1] == "":
                lines.pop()
            results[int(words[1])] = (int(words[2]), lines, float(words[3]) - start)
        elif line.startswith(MARK):
            current, start, lines = int(words[0][len(MARK):]), float(words[1]), []
        else:
            lines.append(line)
    return [results.get(index) for index in range(len(commands))]


class Names:
    """What may be named: files of the tree, tests, and the program's commands with their options."""

    def __init__(self, source, plumb):
        self.source, self.plumb, self.help = source, plumb, {}
        with open(os.path.join(source, "tests", "CMakeLists.txt")) as f:
            self.tests = f.read()

    def option_is_known(self, command, option):
        if command not in self.help:
            said = subprocess.run([self.plumb, *command.split(), "--help"], capture_output=True, text=True)
            self.help[command] = said.stdout + said.stderr if said.returncode == 0 else None
        text = self.help[command]
        return text is not None and (option is None or re.search(re.escape(option) + r"(?![\w-])", text) is not None)

    def judge_command(self, text, say):
        for part in re.split(r"[|;&]+", text):
            words = part.split()
            if len(words) < 2 or words[0] != "plumb" or not re.fullmatch(r"[a-z][a-z-]+", words[1]):
                continue
            command = " ".join(words[1:3]) if words[1] == "golden" and re.fullmatch("[a-z]+", "".join(words[2:3])) else words[1]
            options = [w.split("=")[0] for w in words[2:] if re.match("--[a-z]", w)]
            if not self.option_is_known(command, None):
                say(f"there is no command 'plumb {command}'")
                continue
            for option in options:
                if not self.option_is_known(command, option):
                    say(f"'plumb {command} --help' does not know {option}")

    def judge_prose(self, page, titles, number, line, say):
        for text in re.findall(r"`([^`]+)`", line):
            self.judge_command(text, lambda what: say(number, what))
            path = text.rstrip("/").split(" ")[0]
            if re.fullmatch(r"(core|ref|kernels|opt|golden|tests|tools|docs|cmake)/[\w./-]+", path) and not re.search("[A-Z]{4}", path):
                if not os.path.exists(os.path.join(self.source, path)) and not os.path.exists(os.path.join(self.source, path + ".c")):
                    say(number, f"there is no {path}")
            if re.fullmatch(r"test_[a-z0-9_]+", text) and not re.search(r"\b" + re.sub("_cuda$", "(_cuda)?", text) + r"\b", self.tests):
                say(number, f"there is no test {text}")
        for target in re.findall(r"\]\(([^)]+)\)", line):
            target, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = os.path.normpath(os.path.join(self.source, os.path.dirname(page), target))
            if target and not os.path.exists(path):
                say(number, f"a link to {target}, which is not there")
                continue
            if target and anchor:
                with open(path, encoding="utf-8") as f:
                    titles = anchors(f.read())
            if anchor and anchor not in titles:
                say(number, f"a link to {target}#{anchor}: there is no such heading")


def anchors(text):
    """The names that headings of a page get from those who render it."""
    return [re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in re.findall(r"(?m)^#+ (.*)$", text)]


def judge(place, names, page, text, timeout=600, fresh=False):
    """(faults, commands run, blocks not run) of a page."""
    faults, skipped = [], []
    say = lambda number, what: faults.append(f"{page}:{number}: {what}")
    blocks, prose = blocks_of(text, say)
    todo, needed = [], {}
    for block in blocks:
        why = block.attributes.get("norun")
        for need in block.attributes.get("needs", "").split(",") if "needs" in block.attributes else []:
            if need not in needed:
                needed[need] = has(need, place.plumb)
            if not needed[need]:
                why = "no " + need
        if block.language == "text":
            for number, line in logical_lines(block):
                if line.startswith("$ ") or re.match(r"(plumb|cmake|ctest|tools/\S+\.sh) ", line):
                    say(number, "a command in a 'text' fence")
        elif block.language in ("console", "sh"):
            commands = commands_of(block, say)
            for command in commands:
                names.judge_command(command.text, lambda what: say(command.line, what))
            if why:
                skipped.append(f"{page}:{block.line}: {len(commands)} not run: {why}")
            else:
                todo += commands
        elif why:
            skipped.append(f"{page}:{block.line}: a file not written: {why}")
        elif "file" in block.attributes:
            todo.append((block.attributes["file"], block.text))
        else:
            say(block.line, f"a block in {block.language} without file=, needs= or norun=")
    work = place.folder(page)
    files = tempfile.mkdtemp(dir=place.root)
    results = execute(place, work, todo, files, page != "README.md" and not fresh, timeout)
    ran = 0
    for command, result in zip(todo, results):
        if isinstance(command, tuple):
            continue
        if result is None:
            say(command.line, f"'{command.text}' did not end: the page's shell died, or {timeout} s were over")
            break
        status, said, seconds = result
        ran += 1
        if fresh:
            print(f"{seconds:8.1f} s  {command.text}")
        if status != command.status:
            say(command.line, f"'{command.text}': exit status {status}, expected {command.status}; it said:\n" + "\n".join(said[-40:]))
        elif command.expected is not None:
            missing = matches(command.expected, said)
            if missing is not None:
                say(command.line, f"'{command.text}' does not say, in this place: {missing}\nit said:\n" + "\n".join(said))
    if OTHERS in text: # only links and commands of such a page are judged
        prose = [(number, re.sub(r"`[^` ]+`", "", line)) for number, line in prose]
    for number, line in prose:
        names.judge_prose(page, anchors(text), number, line, say)
    return faults, ran, skipped


OWN_GOOD = """# A heading
Run `plumb list ops`; [this](README.md), [there](#a-heading), `core/op.h`, `test_house`.

```c file=sub/x.c
int x;
```
```console
$ cd sub && wc -l x.c
1 x.c
$ printf 'a 0.12 s\\nb\\nc\\nd\\n'
a 99.5 s
...
d
```
```console status=3,1
$ pwd | grep -c 'sub$'; (exit 3)
1
$ false
```
```sh
VALUE=1
test $VALUE = 1 && \\
  echo yes
```
"""
OWN_BAD = [
    ("```console\n$ echo a\nb\n```\n", "does not say, in this place: b"),
    ("```console\n$ echo a\na\nb\n```\n", "does not say, in this place: b"),
    ("```console\n$ printf 'a\\nb\\n'\na\n```\n", "does not say, in this place: (the end)"),
    ("```console\n$ printf 'a\\nb\\nc\\n'\n...\nb\n```\n", "does not say, in this place: b"),
    ("```console\n$ printf 'a\\nx\\nb\\n'\na\nb\n...\n```\n", "does not say, in this place: b"),
    ("```console\n$ echo 'ratio 1.5'\nratio 1.4\n```\n", "does not say, in this place: ratio 1.4"),
    ("```console\n$ echo 12 tests\n13 tests\n```\n", "does not say, in this place: 13 tests"),
    ("```console\n$ echo\nb\n```\n", "does not say, in this place: b"),
    ("```console\n$ echo b\n$ true\n```\n", "(the end)"),
    ("```console\n$ false\n```\n", "exit status 1, expected 0"),
    ("```console status=1\n$ true\n```\n", "exit status 0, expected 1"),
    ("```console\n$ exit 0\n```\n", "did not end"),
    ("```console\n$ sleep 60\n```\n", "did not end"),
    ("```console\na\n```\n", "output before"),
    ("```sh\nfalse\ntrue\n```\n", "exit status 1, expected 0"),
    ("```text\n$ echo\n```\n", "a command in a 'text' fence"),
    ("```c\nint x;\n```\n", "without file="),
    ("```sh often=no\ntrue\n```\n", "a fence '```sh often=no'"),
    ("```\ntrue\n```\n", "expected a language"),
    ("```sh\ntrue\n", "not closed"),
    ("    plumb check\n", "an indented block"),
    ("`plumb chek x`\n", "there is no command 'plumb chek'"),
    ("`plumb check --no-such`\n", "does not know --no-such"),
    ("```sh norun=\"why\"\nplumb check x --bound\n```\n", "does not know --bound"),
    ("[x](docs/nothing.md)\n", "a link to docs/nothing.md"),
    ("[x](#nothing)\n", "no such heading"),
    ("`core/nothing.h`\n", "there is no core/nothing.h"),
    ("`test_nothing`\n", "there is no test test_nothing"),
]


def judge_self(place, names):
    wrong = 0
    faults, ran, _ = judge(place, names, "good.md", OWN_GOOD)
    if faults or ran != 6:
        print("test_pages: a good page was judged:", *faults, f"{ran} of 6 commands", sep="\n")
        wrong += 1
    for index, (text, words) in enumerate(OWN_BAD):
        faults, _, _ = judge(place, names, f"bad{index}.md", text, timeout=2 if "sleep" in text else 60)
        if not any(words in fault for fault in faults):
            print(f"test_pages: a page in which it should have found '{words}' was judged:", *faults, text, sep="\n")
            wrong += 1
    return wrong


def main():
    arguments = sys.argv[1:]
    fresh = arguments[:1] == ["--fresh"]
    if len(arguments) < 3:
        sys.exit(__doc__)
    if fresh:
        source, build, pages = os.path.abspath(arguments[1]), None, arguments[2:]
    else:
        source, build, pages = os.path.abspath(arguments[0]), os.path.abspath(arguments[1]), arguments[2:]
    place = Place(source, build)
    try:
        names = Names(source, place.plumb)
        if fresh:
            names.option_is_known = lambda command, option: True # the program is not there yet
        wrong, ran = 0 if fresh else judge_self(place, names), 0
        for page in pages:
            with open(os.path.join(source, page), encoding="utf-8") as f:
                text = f.read()
            faults, count, skipped = judge(place, names, page, text, timeout=3600 if fresh else 600, fresh=fresh)
            for line in faults + skipped:
                print(line)
            wrong += len(faults)
            ran += count
        print(f"test_pages: {len(pages)} pages, {ran} commands run, {wrong} faults; {len(OWN_BAD)} planted faults")
        sys.exit(1 if wrong else 0)
    finally:
        place.remove()


if __name__ == "__main__":
    main()

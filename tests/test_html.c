/* SPDX-License-Identifier: MIT */
/* Pages of --html: what stands in them, and what can not. With PLUMB_HTML_DIR=DIR the pages are left there to be looked at;
 * tests/test_html_browser.sh loads them. */
#include <cJSON.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/sha256.h"
#include "tests/support/program.h"
#include "tests/support/report_tree.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tools/html.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define PLANTED PLUMB_USER_DIR "/planted.so"
#define ROUTER PLUMB_USER_DIR "/router.so"

/* A text that would be markup, script or a trick of the eye, were it let through. */
#define HOSTILE                                                                                                            \
	"</script><script>document.title='taken'</script><!--<img src=x onerror=\"document.title='taken'\">' \" & "        \
	"\xE2\x80\xA8\xE2\x80\xAE\xFF\xC0\xAF\xED\xA0\x80\x1B[31m%s%n"

enum { MOST = 1000000 }; /* bytes of a page */

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}

static void teardown(void)
{
	scratch_remove(dir);
}

/* ---- a page as a strict reader takes it ---- */

static const char *const known[] = {"!DOCTYPE", "html", "head", "meta", "title", "style", "body", "header", "span", "svg",
	"button", "main", "section", "div", "h1", "h2", "h3", "p", "dl", "dt", "dd", "code", "table", "caption", "thead",
	"tbody", "tr", "th", "td", "noscript", "ol", "ul", "li", "b", "i", "script"};
static const char *const known_attributes[] = {"html", "lang", "charset", "name", "content", "http-equiv", "class", "id",
	"type", "hidden", "aria-hidden", "aria-label", "aria-labelledby", "tabindex", "role", "scope", "style", "title",
	"width", "height", "data-script", "data-roof"};

static bool is_in(const char *const *list, size_t n, const char *text, size_t length)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(list[i]) == length && strncmp(list[i], text, length) == 0)
			return true;
	return false;
}

/* A tag: known, its attributes known and quoted. Returns what follows '>'. */
static const char *read_tag(const char *p, char name[16], bool *ends)
{
	size_t n;

	*ends = *++p == '/';
	p += *ends;
	n = strcspn(p, " >\n");
	ck_assert_msg(n < 16 && is_in(known, sizeof known / sizeof known[0], p, n), "unknown tag: %.40s", p);
	memcpy(name, p, n);
	name[n] = '\0';
	for (p += n; *p == ' ';) {
		p++;
		n = strcspn(p, "= >");
		ck_assert_msg(is_in(known_attributes, sizeof known_attributes / sizeof known_attributes[0], p, n),
			"attribute: %.40s", p);
		p += n;
		if (*p != '=')
			continue;
		ck_assert_msg(p[1] == '"', "attribute without quotes: %.40s", p);
		p += 2 + strcspn(p + 2, "\"<");
		ck_assert_msg(*p == '"', "'<' in an attribute: %.40s", p);
		p++;
	}
	ck_assert_msg(*p == '>', "tag goes on: %.40s", p);
	return p + 1;
}

/* Every tag is one of ours and is closed in its turn; text has no bare '<' or '&'; all of it is UTF-8 without characters
 * that do not show. */
static void expect_well_formed(const char *page)
{
	char open[32][16], name[16];
	int depth = 0;
	bool ends;

	for (const char *p = page; *p;) {
		if (*p == '<') {
			p = read_tag(p, name, &ends);
			if (strcmp(name, "!DOCTYPE") == 0 || strcmp(name, "meta") == 0)
				continue;
			if (ends) {
				ck_assert_msg(depth > 0 && strcmp(open[depth - 1], name) == 0, "</%s> inside <%s>", name,
					depth ? open[depth - 1] : "");
				depth--;
				continue;
			}
			ck_assert_int_lt(depth, 32);
			strcpy(open[depth++], name);
			if (strcmp(name, "script") == 0 || strcmp(name, "style") == 0) {
				p = strchr(p, '<'); /* none in there but the end, or it would not be read as such */
				while (p && strncmp(p, "</", 2) != 0)
					p = strchr(p + 1, '<');
				ck_assert_ptr_nonnull(p);
			}
			continue;
		}
		if (*p == '&')
			ck_assert_msg(strcspn(p, ";") <= 7, "bare '&': %.20s", p);
		unsigned char c = (unsigned char)*p;
		ck_assert_msg(c >= 0x20 || c == '\n' || c == '\t', "control character 0x%02x", c);
		ck_assert_msg(c < 0x80 || (c >= 0xC2 && c < 0xF5) || (c & 0xC0) == 0x80, "no UTF-8: 0x%02x", c);
		p++;
	}
	ck_assert_int_eq(depth, 0);
}

static int occurrences(const char *page, const char *word)
{
	int n = 0;
	for (const char *p = page; (p = strstr(p, word)); p += strlen(word))
		n++;
	return n;
}

/* Nothing is fetched, and only the script that the page's policy names can run. quoted: the page quotes texts that look
 * otherwise; expect_well_formed has seen that they are text. */
static void expect_alone(const char *page, bool quoted)
{
	static const char *const words[] = {"http:", "https:", "//w", "src=", "href=", "url(", "@import", "<link",
		"<iframe", "<img", "<!--", "import(", "innerHTML"};
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct plumb_sha256 sha;
	char hex[65], named[65] = "";
	const char *digest = strstr(page, "'sha256-"), *script = strstr(page, "<script>");
	unsigned bits = 0, have = 0;

	for (size_t i = 0; i < sizeof words / sizeof words[0] && !quoted; i++)
		ck_assert_msg(!strstr(page, words[i]), "the page has '%s': %.60s", words[i], strstr(page, words[i]));
	ck_assert_int_eq(occurrences(page, "<script"), 2);
	ck_assert_ptr_nonnull(strstr(page, "default-src 'none'"));
	ck_assert_ptr_nonnull(digest);
	ck_assert_ptr_nonnull(script);
	plumb_sha256_begin(&sha);
	plumb_sha256_add(&sha, script + 8, (size_t)(strstr(script, "</script>") - script - 8));
	plumb_sha256_end(&sha, hex);
	for (const char *p = digest + 8; *p != '='; p++) {
		const char *at = strchr(set, *p);
		ck_assert_ptr_nonnull(at);
		bits = bits << 6 | (unsigned)(at - set);
		for (have += 6; have >= 8; have -= 8)
			snprintf(named + strlen(named), 3, "%02x", bits >> (have - 8) & 255);
	}
	ck_assert_str_eq(hex, named);
}

/* The data that the script reads. */
static cJSON *data_of(const char *page)
{
	const char *begin = strstr(page, "id=\"data\">"), *end;
	ck_assert_ptr_nonnull(begin);
	begin += strlen("id=\"data\">");
	end = strstr(begin, "</script>");
	char *text = strndup(begin, (size_t)(end - begin));
	cJSON *data = cJSON_Parse(text);
	ck_assert_msg(data != NULL, "no JSON: %.80s", text);
	free(text);
	return data;
}

static void keep(const char *name, const char *page, size_t size)
{
	const char *folder = getenv("PLUMB_HTML_DIR");
	if (folder)
		scratch_write(folder, name, page, size);
}

/* The page of a tree, looked over. */
static char *page_of(cJSON *tree, const char *name)
{
	struct plumb_error err = {""};
	size_t size = 0, again = 0;
	char *page = html_page(tree, &size, &err), *twice = html_page(tree, &again, &err);

	ck_assert_msg(page && twice, "%s", err.text);
	ck_assert_uint_eq(size, strlen(page));
	ck_assert_msg(size == again && memcmp(page, twice, size) == 0, "not the same bytes twice");
	ck_assert_msg(size < MOST, "%s: %zu bytes", name, size);
	expect_well_formed(page);
	expect_alone(page, strstr(name, "hostile") != NULL);
	cJSON_Delete(data_of(page));
	keep(name, page, size);
	free(twice);
	cJSON_Delete(tree);
	return page;
}

#define MAKERS 4
static const struct {
	cJSON *(*make)(const struct report_tree *t);
	const char *name;
} maker[MAKERS] = {{report_tree_check, "check"}, {report_tree_bisect, "bisect"}, {report_tree_bench, "bench"},
	{report_tree_score, "score"}};

/* ---- pages of made-up trees ---- */

START_TEST(made_up)
{
	const struct report_tree fails = {.layers = 4, .tokens = 56, .fails = true, .bounds = true, .name = ""};
	struct report_tree passes = fails;
	char name[64], *page;

	passes.fails = false;
	snprintf(name, sizeof name, "%s-fails.html", maker[_i].name);
	page = page_of(maker[_i].make(&fails), name);
	ck_assert_ptr_nonnull(strstr(page, "class=\"verdict fail\""));
	free(page);
	snprintf(name, sizeof name, "%s-passes.html", maker[_i].name);
	page = page_of(maker[_i].make(&passes), name);
	ck_assert_ptr_null(strstr(page, "class=\"verdict fail\""));
	free(page);
}
END_TEST

/* The release has 48 layers. */
START_TEST(large)
{
	const struct report_tree t = {.layers = 48, .tokens = 4096, .fails = true, .bounds = true, .name = ""};
	char *page = page_of(report_tree_check(&t), "large.html");

	ck_assert_ptr_nonnull(
		strstr(page, "<h1>Does not match: layer 16, moe_down, element output[803] is 3.1 times its bound</h1>"));
	cJSON *data = data_of(page);
	const cJSON *view = cJSON_GetArrayItem(cJSON_GetObjectItem(data, "views"), 0);
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(view, "items")), 48 * 25);
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(view, "drift")), 49);
	cJSON_Delete(data);
	free(page);
}
END_TEST

START_TEST(long_names)
{
	char name[160];
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	const struct report_tree t = {.layers = 4, .tokens = 8, .fails = true, .bounds = true, .name = name};
	char file[64];
	snprintf(file, sizeof file, "%s-long.html", maker[_i].name);
	free(page_of(maker[_i].make(&t), file));
}
END_TEST

START_TEST(hostile)
{
	const struct report_tree t = {.layers = 3, .tokens = 8, .fails = true, .bounds = true, .name = HOSTILE};
	char file[64], *page;

	snprintf(file, sizeof file, "%s-hostile.html", maker[_i].name);
	page = page_of(maker[_i].make(&t), file);
	ck_assert_ptr_nonnull(strstr(page, "&lt;/script&gt;&lt;script&gt;document.title=&#39;taken&#39;"));
	ck_assert_ptr_null(strstr(page, "<script>document"));
	ck_assert_ptr_null(strstr(page, "\xE2\x80\xA8"));
	ck_assert_ptr_null(strstr(page, "\xE2\x80\xAE"));
	ck_assert_ptr_null(strchr(page, 0x1B));
	ck_assert_ptr_null(strstr(page, "\\u001b")); /* nor in the data */
	ck_assert_ptr_null(strstr(page, "\\u2028"));
	free(page);
}
END_TEST

/* Put something else in the place of one member after the other, deep down too: a page comes all the same, or a refusal. */
static int spoil(cJSON *item, int *countdown)
{
	for (cJSON *child = item ? item->child : NULL; child; child = child->next) {
		if ((*countdown)-- == 0) {
			cJSON *other = *countdown % 2 ? cJSON_CreateNumber(-1e300) : cJSON_CreateString("x");
			if (cJSON_IsNumber(child))
				other = (cJSON_Delete(other), cJSON_CreateString("many"));
			else if (cJSON_IsString(child))
				other = (cJSON_Delete(other), cJSON_CreateArray());
			other->string = child->string ? strdup(child->string) : NULL;
			cJSON_ReplaceItemViaPointer(item, child, other);
			return 1;
		}
		if (spoil(child, countdown))
			return 1;
	}
	return 0;
}

START_TEST(other_types)
{
	const struct report_tree t = {.layers = 1, .tokens = 3, .fails = true, .bounds = true, .name = ""};
	int spoiled = 0;

	for (;; spoiled += _i == 0 ? 7 : 1) { /* a check has thousands of members, much alike */
		cJSON *tree = maker[_i].make(&t);
		struct plumb_error err = {""};
		size_t size;
		int countdown = spoiled;
		bool done = !spoil(tree, &countdown);
		char *page = html_page(tree, &size, &err);
		cJSON_Delete(tree);
		ck_assert_msg(page || strstr(err.text, "format"), "%s", err.text);
		if (page && (spoiled % 4 == 0 || done))
			expect_well_formed(page);
		free(page);
		if (done)
			break;
	}
	ck_assert_int_gt(spoiled, 20);
}
END_TEST

START_TEST(nothing_there)
{
	static const char *const trees[] = {"{\"format\": \"plumb check 1\"}", "{\"format\": \"plumb bisect 1\"}",
		"{\"format\": \"plumb bench 1\"}", "{\"format\": \"plumb score 1\", \"verdict\": \"pass\"}",
		"{\"format\": \"plumb faults score 1\", \"pass\": true}"};
	static const char *const bad[] = {"{}", "{\"format\": \"plumb check 2\"}", "[]", "3", "{\"format\": 1}"};
	struct plumb_error err = {""};
	size_t size;

	for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
		char *page = page_of(cJSON_Parse(trees[i]), "nothing.html");
		ck_assert_msg(i == 2 || strstr(page, "class=\"verdict fail\""), "nothing shows nothing: %s", trees[i]);
		free(page);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cJSON *tree = cJSON_Parse(bad[i]);
		ck_assert_ptr_null(html_page(tree, &size, &err));
		ck_assert_ptr_nonnull(strstr(err.text, "format"));
		cJSON_Delete(tree);
	}
}
END_TEST

/* What plumb faults and plumb test write with --json, as they write it. */
START_TEST(scores)
{
	static const char faults[] = "{\"format\": \"plumb faults score 1\", \"lane\": \"simt\", \"seed\": 1, \"pass\": "
				     "false, \"checks\": {\"twin\": "
				     "{\"killed\": 2, \"total\": 2}}, \"faults\": ["
				     "{\"id\": \"moe-tie\", \"class\": \"tie\", \"stage\": \"moe\", \"file\": "
				     "\"kernels/moe.cu\", \"line\": 3, \"outcome\": \"killed\"},"
				     "{\"id\": \"moe-tail\", \"class\": \"tail\", \"stage\": \"moe\", \"file\": "
				     "\"kernels/moe.cu\", \"line\": 9, \"outcome\": \"killed\"},"
				     "{\"id\": \"gdn-tail\", \"class\": \"tail\", \"stage\": \"gdn\", \"file\": "
				     "\"kernels/gdn.cu\", \"line\": 4, \"outcome\": \"survived\"},"
				     "{\"id\": \"gdn-same\", \"class\": \"tail\", \"stage\": \"gdn\", \"file\": "
				     "\"kernels/gdn.cu\", \"line\": 5, \"outcome\": \"equivalent\"},"
				     "{\"id\": \"gdn-lost\", \"class\": \"tail\", \"stage\": \"gdn\", \"file\": "
				     "\"kernels/gdn.cu\", \"line\": 6, \"outcome\": \"error\"}]}";
	static const char test[] =
		"{\"format\": \"plumb test 1\", \"seed\": 1, \"device\": \"simt\", \"shard\": \"1/1\", \"failed\": 1, "
		"\"pass\": false, \"cases\": [{\"case\": \"attn_gate/plain/1\", \"op\": \"attn_gate\", \"pass\": true},"
		"{\"case\": \"attn_gate/nan/2\", \"op\": \"attn_gate\", \"class\": \"nan\", \"pass\": false, \"text\": "
		"\"out is wrong\", \"replay\": \"plumb test --case attn_gate/nan/2\"}]}";
	static const char counted[] =
		"{\"format\": \"plumb faults score 1\", \"lane\": \"simt\", \"seed\": 1, \"pass\": false, \"faults\": ["
		"{\"id\": \"tie\", \"class\": \"F02\", \"kind\": \"fault\", \"stage\": \"moe\", \"lane\": \"simt\", "
		"\"file\": "
		"\"kernels/moe.cu\", \"line\": 3, \"outcome\": \"killed\", \"killed_by\": \"replay\"},"
		"{\"id\": \"x\", \"class\": \"drop\", \"kind\": \"mutant\", \"stage\": \"moe\", \"lane\": \"simt\", "
		"\"file\": "
		"\"kernels/moe.cu\", \"line\": 9, \"outcome\": \"survived\", \"why\": \"drop\", \"before\": \"a <b> c\\n  "
		"d\", "
		"\"after\": \"e\", \"again\": \"plumb faults --id x\"}],"
		"\"classes\": {\"F02\": {\"killed\": 1, \"total\": 1, \"by\": {\"replay\": 1}}, \"drop\": {\"killed\": 0, "
		"\"total\": "
		"1, \"by\": {}}}, \"lanes\": {\"simt\": {\"killed\": 1, \"total\": 2, \"by\": {\"replay\": 1}}},"
		"\"mutants\": {\"killed\": 0, \"total\": 1, \"least\": 90, \"judged\": false},"
		"\"shard\": {\"index\": 2, \"of\": 3, \"failure\": \"stopped <here>\"}}";
	static const char merged[] = "{\"format\": \"plumb merge 1\", \"command\": \"plumb merge *.json\", \"pass\": "
				     "false, \"merged\": [{}, {}], \"shard\": "
				     "{\"command\": \"check\", \"inputs\": {\"policy\": \"f32\"}, \"units\": ["
				     "{\"name\": \"local/layer00/x\", \"verdict\": \"fail\", \"text\": \"too far\"}, "
				     "{\"name\": \"local/layer00/y\", "
				     "\"verdict\": \"pass\"}, {\"name\": \"local/layer01/y\", \"verdict\": \"skip\"}]}}";
	cJSON *tree;
	char *page = page_of(cJSON_Parse(faults), "faults.html");

	ck_assert_ptr_nonnull(strstr(page, "<h1>2 of 3 planted faults caught in lane simt</h1>"));
	ck_assert_ptr_nonnull(strstr(page, "gdn-tail"));
	ck_assert_ptr_nonnull(strstr(page, "gdn-lost"));
	ck_assert_ptr_null(strstr(page, "gdn-same"));
	free(page);
	page = page_of(cJSON_Parse(counted), "counted.html");
	ck_assert_ptr_nonnull(strstr(page, "<h1>1 of 1 planted faults and 0 of 1 mutants caught in lane simt</h1>"));
	ck_assert_ptr_nonnull(
		strstr(page, "<code class=\"was\">- a &lt;b&gt; c</code>\n<code class=\"was\">-   d</code>\n<code "
			     "class=\"is\">+ e</code>"));
	ck_assert_ptr_nonnull(strstr(page, "tests/faults/equivalent.json"));
	ck_assert_ptr_nonnull(strstr(page, "plumb faults --id x</code>"));
	ck_assert_ptr_nonnull(strstr(page, "By lane"));
	ck_assert_ptr_nonnull(strstr(page, "replay (1)"));
	ck_assert_ptr_nonnull(strstr(page, "stopped &lt;here&gt;"));
	ck_assert_ptr_nonnull(strstr(page, "2 of 3"));
	free(page);
	page = page_of(cJSON_Parse(merged), "merged.html");
	ck_assert_ptr_nonnull(strstr(page, "<h1>1 of 3 units of plumb check fail, 1 are skipped</h1>"));
	ck_assert_ptr_nonnull(strstr(page, "local/layer00/x"));
	ck_assert_ptr_nonnull(strstr(page, "too far"));
	free(page);
	tree = cJSON_Parse(merged);
	cJSON_AddItemToObject(tree, "whole", cJSON_Parse(counted));
	page = page_of(tree, "merged-faults.html");
	ck_assert_ptr_nonnull(strstr(page, "0 of 1 mutants caught"));
	ck_assert_ptr_nonnull(strstr(page, "plumb merge *.json"));
	free(page);
	page = page_of(cJSON_Parse(test), "test.html");
	ck_assert_ptr_nonnull(strstr(page, "<h1>1 of 2 cases fail on simt</h1>"));
	ck_assert_ptr_nonnull(strstr(page, "plumb test --case attn_gate/nan/2"));
	ck_assert_ptr_null(strstr(page, "urvivo"));
	free(page);
}
END_TEST

/* ---- pages of the program ---- */

/* Page and JSON of one run. */
static char *run(int status, cJSON **tree, const char *file, const char *words)
{
	struct program_result r;
	char path[SCRATCH_PATH], json[SCRATCH_PATH], *page, *text;
	size_t size, json_size;

	scratch_path(path, dir, "report.html");
	scratch_path(json, dir, "report.json");
	program(&r, dir, "%s --html %s --json %s", words, path, json);
	program_expect(&r, status);
	page = scratch_read(path, &size);
	text = scratch_read(json, &json_size);
	*tree = cJSON_Parse(text);
	ck_assert_ptr_nonnull(*tree);
	ck_assert_uint_lt(size, MOST);
	expect_well_formed(page);
	expect_alone(page, false);
	keep(file, page, size);
	free(text);
	return page;
}

START_TEST(check_passes)
{
	cJSON *tree, *again;
	const char *words = "check " TINY " --checkpoint " CHECKPOINT " --set ref --op attn_gate@3=opt";
	char *page = run(0, &tree, "tiny-passes.html", words), *twice = run(0, &again, "tiny-passes.html", words), text[64];
	const cJSON *view;
	int items = 0;

	ck_assert_ptr_nonnull(strstr(page, "class=\"verdict pass\""));
	ck_assert_msg(cJSON_IsTrue(cJSON_GetObjectItem(tree, "pass")), "verdict of --json");
	cJSON_ArrayForEach (view, cJSON_GetObjectItem(tree, "views"))
		items += cJSON_GetArraySize(cJSON_GetObjectItem(view, "items"));
	snprintf(text, sizeof text, "Matches: %d comparisons", items);
	ck_assert_msg(strstr(page, text) != NULL, "no '%s'", text);
	ck_assert_str_eq(page, twice);
	ck_assert_ptr_nonnull(strstr(page, cJSON_GetStringValue(cJSON_GetObjectItem(tree, "digest"))));
	ck_assert_ptr_nonnull(strstr(page, "transformers 5.17.0"));
	ck_assert_ptr_nonnull(strstr(page, "plumb bisect " TINY)); /* the attn_gate of opt could be at fault */
	cJSON_Delete(tree);
	cJSON_Delete(again);
	free(page);
	free(twice);
}
END_TEST

START_TEST(check_fails)
{
	cJSON *tree;
	setenv("PLANTED", "gdn_out_proj@1=tail", 1);
	char *page = run(1, &tree, "tiny-fails.html",
		     "check " TINY " --checkpoint " CHECKPOINT " --op gdn_out_proj=" PLANTED " --date 2026-01-31"),
	     text[256];
	const cJSON *view = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "views"), 0), *item, *failed = NULL;

	cJSON_ArrayForEach (item, cJSON_GetObjectItem(view, "items"))
		if (cJSON_IsFalse(cJSON_GetObjectItem(item, "pass")))
			failed = item;
	ck_assert_ptr_nonnull(failed);
	ck_assert_msg(cJSON_IsFalse(cJSON_GetObjectItem(tree, "pass")), "verdict of --json");
	ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(failed, "tensor")), "layer01/gdn/output");
	ck_assert_double_gt(cJSON_GetObjectItem(failed, "share_of_tolerance")->valuedouble, 1.0);
	ck_assert_ptr_nonnull(strstr(page, "<h1>Does not match: layer 1, gdn_out_proj, gdn/output is "));
	item = cJSON_GetObjectItem(failed, "worst");
	snprintf(text, sizeof text, "element [%s] is %.9g, recorded %.9g",
		cJSON_GetStringValue(cJSON_GetObjectItem(item, "at")), cJSON_GetObjectItem(item, "ours")->valuedouble,
		cJSON_GetObjectItem(item, "golden")->valuedouble);
	ck_assert_msg(strstr(page, text) != NULL, "no '%s'", text);
	ck_assert_ptr_nonnull(strstr(page, "--op gdn_out_proj=" PLANTED " --case wrong.h5"));
	ck_assert_ptr_nonnull(strstr(page, "2026-01-31"));
	cJSON_Delete(tree);
	free(page);
}
END_TEST

/* What hc_inject writes behind the attention is not recorded; the next op makes it show, and the kernel is blamed. */
START_TEST(passed_on)
{
	cJSON *tree;
	setenv("PLANTED", "hc_inject@2=factor", 1);
	char *page = run(1, &tree, "tiny-passed-on.html",
		"check " TINY " --checkpoint " CHECKPOINT " --view local --op hc_inject@2=" PLANTED);

	ck_assert_ptr_nonnull(strstr(page, "<h1>Does not match: layer 2, hc_inject, which shows in mlp_hc/"));
	cJSON_Delete(tree);
	free(page);
	/* an op that writes recorded tensors and one that is not: past the ops between, up to where it is read */
	setenv("ROUTER_FAULT", "row", 1);
	page = run(1, &tree, "tiny-passed-further.html",
		"check " TINY " --checkpoint " CHECKPOINT " -q --op moe_router=" ROUTER);
	ck_assert_ptr_nonnull(strstr(page, "<h1>Does not match: layer 0, moe_router, which shows in moe/output: "));
	ck_assert_ptr_nonnull(strstr(page, "checkpoint --op moe_router=" ROUTER " --case wrong.h5")); /* no -q */
	cJSON_Delete(tree);
	free(page);
	page = run(1, &tree, "tiny-passed-further.html",
		"check " TINY " --checkpoint " CHECKPOINT " --view propagated --op moe_router=" ROUTER);
	ck_assert_ptr_nonnull(strstr(page, "<h1>Does not match: layer 0, moe_router, which shows in moe/output: "));
	cJSON_Delete(tree);
	free(page);
	unsetenv("ROUTER_FAULT");
}
END_TEST

START_TEST(tests)
{
	cJSON *tree;
	char *page = run(0, &tree, "tiny-test.html", "test argmax --class ties");

	ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "format")), "plumb test 1");
	ck_assert_ptr_nonnull(strstr(page, "cases pass on simt</h1>"));
	cJSON_Delete(tree);
	free(page);
}
END_TEST

START_TEST(check_crashes)
{
	cJSON *tree;
	setenv("PLANTED", "gdn_out_proj@1=crash", 1);
	char *page =
		run(1, &tree, "tiny-crashes.html", "check " TINY " --checkpoint " CHECKPOINT " --op gdn_out_proj=" PLANTED);

	ck_assert_ptr_nonnull(strstr(page, "SIGSEGV"));
	ck_assert_ptr_nonnull(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "failure")), "SIGSEGV"));
	cJSON_Delete(tree);
	free(page);
}
END_TEST

/* Histograms, drift and ratios by layer tell what the figures beside them tell. */
START_TEST(figures)
{
	cJSON *tree;
	char *page = run(0, &tree, "tiny-bounds.html",
		"check " TINY " --checkpoint " CHECKPOINT " --view local --layers 3 --set opt --bounds");
	const cJSON *view = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "views"), 0), *item, *one;

	cJSON_ArrayForEach (item, cJSON_GetObjectItem(view, "items")) {
		const cJSON *histogram = cJSON_GetObjectItem(item, "ulp_histogram");
		double n = 0.0;
		if (!histogram)
			continue;
		cJSON_ArrayForEach (one, histogram)
			n += one->valuedouble;
		ck_assert_double_eq(n, cJSON_GetObjectItem(item, "elements")->valuedouble);
		int last = cJSON_GetArraySize(histogram) - 1;
		double ulp = cJSON_GetObjectItem(item, "max_ulp")->valuedouble;
		ck_assert_msg(last == 0 ? ulp == 0.0 : ulp < (double)(1LL << last) && 2.0 * ulp >= (double)(1LL << last),
			"%d %g", last, ulp);
		ck_assert_double_le(cJSON_GetObjectItem(item, "share_of_tolerance")->valuedouble, 1.0);
	}
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(cJSON_GetObjectItem(view, "bounds"), "ops")) {
		double n = 0.0, most = 0.0;
		if (cJSON_GetArraySize(cJSON_GetObjectItem(item, "operands")) == 0)
			continue; /* it chooses */
		cJSON_ArrayForEach (one, cJSON_GetObjectItem(item, "ratio_histogram"))
			n += one->valuedouble;
		double values = cJSON_GetObjectItem(item, "values")->valuedouble;
		ck_assert_double_ge(n, 1.0);
		ck_assert_double_le(n, values); /* a masked score is no number, and has no ratio */
		if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(item, "op")), "qsa_score") != 0)
			ck_assert_double_eq(n, values);
		cJSON_ArrayForEach (one, cJSON_GetObjectItem(item, "layers")) {
			double ratio = cJSON_GetObjectItem(one, "max_ratio")->valuedouble;
			most = ratio > most ? ratio : most;
		}
		ck_assert_double_eq(most, cJSON_GetObjectItem(item, "max_ratio")->valuedouble);
	}
	item = cJSON_GetArrayItem(cJSON_GetObjectItem(cJSON_GetObjectItem(view, "drift"), "tensors"), 0);
	ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(item, "tensor")), "layer03/output");
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(item, "relative_l2")), 56);
	cJSON_Delete(tree);
	free(page);
}
END_TEST

START_TEST(bisects)
{
	cJSON *tree;
	setenv("PLANTED", "gdn_out_proj@1=tail", 1);
	char *page = run(1, &tree, "tiny-bisect.html",
		"bisect " TINY " --checkpoint " CHECKPOINT " --op gdn_out_proj=" PLANTED " --tokens 1,2,3 --steps 1");
	const cJSON *finding = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "findings"), 0);

	ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(tree, "format")), "plumb bisect 1");
	ck_assert_ptr_nonnull(strstr(page, "<h1>gdn_out_proj in layer 1 is wrong</h1>"));
	ck_assert_ptr_nonnull(strstr(page, cJSON_GetStringValue(cJSON_GetObjectItem(finding, "inside"))));
	cJSON_Delete(tree);
	free(page);
}
END_TEST

START_TEST(benches)
{
	cJSON *tree;
	char *page = run(0, &tree, "tiny-bench.html",
		"bench --synthetic tiny --set ref --mode twin --context 100 --repeat 1 --quick");

	ck_assert_ptr_nonnull(strstr(page, "<h1>A token takes "));
	ck_assert_ptr_nonnull(strstr(page, "gdn_recurrence"));
	ck_assert_ptr_nonnull(cJSON_GetObjectItem(tree, "command"));
	cJSON_Delete(tree);
	free(page);
}
END_TEST

#define CHECK_TINY "check " TINY " --checkpoint " CHECKPOINT " --view local --layers 0 "
#define BISECT_TINY "bisect " TINY " --checkpoint " CHECKPOINT " --set opt "

START_TEST(refusals)
{
	static const struct {
		const char *words, *first, *second;
	} bad[] = {
		{CHECK_TINY "--html /nonexistent/x.html", "--html", "no such folder"},
		{CHECK_TINY "--html ''", "--html", "empty"},
		{CHECK_TINY "--html /tmp", "--html", "folder"},
		{CHECK_TINY "--html " TINY, "--html", "overwrite"},
		{CHECK_TINY "--html " CHECKPOINT "/x.html", "--html", "checkpoint"},
		{CHECK_TINY "--html - --json -", "--html", "two files"},
		{CHECK_TINY "--html /tmp/x --junit /tmp/x", "--junit", "two files"},
		{BISECT_TINY "--html /nonexistent/x.html", "--html", "no such folder"},
		{BISECT_TINY "--html /tmp/x --case /tmp/x", "--case", "two files"},
		{BISECT_TINY "--html " TINY, "--html", "overwrite"},
		{"bench --set ref --html /nonexistent/x.html", "--html", "no such folder"},
		{"bench --set ref --html - --json -", "--html", "two files"},
		{"test argmax --html /nonexistent/x.html", "--html", "no such folder"},
	};
	struct program_result r;

	program(&r, dir, "%s", bad[_i].words);
	program_expect_bad(&r, bad[_i].first, bad[_i].second);
}
END_TEST

/* On standard output the page stands alone. */
START_TEST(on_standard_output)
{
	struct program_result r;
	program(&r, dir, CHECK_TINY "--html -");
	program_expect(&r, 0);
	ck_assert_ptr_eq(strstr(r.out, "<!DOCTYPE html>"), r.out);
	ck_assert_str_eq(r.err, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("html");
	TCase *tc = suite_part(suite, "html", 120);

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, made_up, 0, MAKERS);
	tcase_add_test(tc, large);
	tcase_add_loop_test(tc, long_names, 0, MAKERS);
	tcase_add_loop_test(tc, hostile, 0, MAKERS);
	tcase_add_loop_test(tc, other_types, 0, MAKERS);
	tcase_add_test(tc, nothing_there);
	tcase_add_test(tc, scores);
	tcase_add_test(tc, check_passes);
	tcase_add_test(tc, check_fails);
	tcase_add_test(tc, passed_on);
	tcase_add_test(tc, tests);
	tcase_add_test(tc, check_crashes);
	tcase_add_test(tc, figures);
	tcase_add_test(tc, bisects);
	tcase_add_test(tc, benches);
	tcase_add_loop_test(tc, refusals, 0, 13);
	tcase_add_test(tc, on_standard_output);
	return suite_run(suite);
}

/* SPDX-License-Identifier: MIT */
/* The oracle's top-k. The torch rule is held against libstdc++ itself, called the way torch calls it on the CPU; the lower
 * rule against a full stable sort. Rows are full of ties, since only they tell the rules apart. */
#include <algorithm>
#include <check.h>
#include <cmath>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

extern "C" {
#include "ref/topk.h"
#include "tests/support/suite.h"
}

typedef std::pair<float, int32_t> pair;

/* torch.topk(largest, sorted) of a CPU tensor. */
static std::vector<int32_t> torch_rule(const std::vector<float> &v, int32_t k)
{
	std::vector<pair> queue;
	for (size_t i = 0; i < v.size(); i++)
		queue.push_back(pair(v[i], (int32_t)i));
	auto before = [](const pair &x, const pair &y) {
		return (std::isnan(x.first) && !std::isnan(y.first)) || x.first > y.first;
	};
	if ((int64_t)k * 64 <= (int64_t)v.size()) {
		std::partial_sort(queue.begin(), queue.begin() + k, queue.end(), before);
	} else {
		std::nth_element(queue.begin(), queue.begin() + k - 1, queue.end(), before);
		std::sort(queue.begin(), queue.begin() + k - 1, before);
	}
	std::vector<int32_t> out;
	for (int32_t i = 0; i < k; i++)
		out.push_back(queue[(size_t)i].second);
	return out;
}

/* Larger first, then lower index, NaN last. */
static std::vector<int32_t> lower_rule(const std::vector<float> &v, int32_t k)
{
	std::vector<int32_t> index(v.size());
	for (size_t i = 0; i < v.size(); i++)
		index[i] = (int32_t)i;
	std::stable_sort(index.begin(), index.end(), [&](int32_t a, int32_t b) {
		float x = v[(size_t)a], y = v[(size_t)b];
		return std::isnan(y) ? !std::isnan(x) : x > y;
	});
	index.resize((size_t)k);
	return index;
}

static std::vector<int32_t> ours(enum plumb_ties ties, const std::vector<float> &v, int32_t k)
{
	std::vector<struct topk_item> item(v.size());
	std::vector<int32_t> out((size_t)k);
	topk_ref(ties, v.data(), (int32_t)v.size(), k, item.data(), out.data());
	return out;
}

/* Values of few distinct kinds; kind 0: relu-like zeros, 1: coarse steps, 2: all equal, 3: with NaN, Inf and -0,
 * 4: ascending with repeats (the pivots' bad case), 5: all distinct. */
static std::vector<float> row(std::mt19937 &g, int kind, int n)
{
	std::vector<float> v((size_t)n);
	for (int i = 0; i < n; i++) {
		int r = (int)(g() % 1000);
		switch (kind) {
		case 0:
			v[(size_t)i] = r < 600 ? 0.0f : (float)(r % 17);
			break;
		case 1:
			v[(size_t)i] = (float)(r % 9) * 0.25f;
			break;
		case 2:
			v[(size_t)i] = 3.0f;
			break;
		case 3:
			v[(size_t)i] = r < 60 ? NAN : r < 90 ? INFINITY : r < 150 ? -0.0f : r < 220 ? 0.0f : (float)(r % 5);
			break;
		case 4:
			v[(size_t)i] = (float)(i / 3);
			break;
		default:
			v[(size_t)i] = (float)i * 1.5f - (float)(i % 2) * 1e6f;
			break;
		}
	}
	return v;
}

static void assert_equal(const std::vector<int32_t> &a, const std::vector<int32_t> &b, const char *rule, int kind, int n,
	int k, unsigned seed)
{
	for (size_t i = 0; i < a.size(); i++)
		ck_assert_msg(a[i] == b[i], "%s rule, kind %d, n %d, k %d, seed %u: place %zu is %d, expected %d", rule,
			kind, n, k, seed, i, a[i], b[i]);
}

START_TEST(both_rules)
{
	int n = 0, total = 0;
	for (unsigned seed = 0; seed < 4000; seed++) {
		std::mt19937 g(seed);
		int kind = (int)(seed % 6);
		n = 1 + (int)(g() % (seed % 10 ? 70 : 3000));
		std::vector<float> v = row(g, kind, n);
		int k = 1 + (int)(g() % (unsigned)(seed % 3 ? std::min(n, 40) : n));
		assert_equal(ours(PLUMB_TIES_LOWER, v, k), lower_rule(v, k), "lower", kind, n, k, seed);
#ifdef __GLIBCXX__
		assert_equal(ours(PLUMB_TIES_TORCH, v, k), torch_rule(v, k), "torch", kind, n, k, seed);
#endif
		total++;
	}
	ck_assert_int_eq(total, 4000);
}
END_TEST

/* The rules must differ where they are meant to, or the test above proves nothing. */
START_TEST(rules_differ_on_ties)
{
	int differ = 0;
	for (unsigned seed = 0; seed < 200; seed++) {
		std::mt19937 g(seed);
		std::vector<float> v = row(g, 1, 16);
		differ += ours(PLUMB_TIES_LOWER, v, 4) != ours(PLUMB_TIES_TORCH, v, 4);
	}
	ck_assert_int_gt(differ, 20);
}
END_TEST

START_TEST(edges)
{
	std::vector<float> v = {1.0f, 2.0f, 3.0f};
	int32_t untouched = 77;
	struct topk_item item[3];

	topk_ref(PLUMB_TIES_LOWER, v.data(), 3, 0, item, &untouched);
	ck_assert_int_eq(untouched, 77);
	ck_assert(ours(PLUMB_TIES_LOWER, v, 3) == std::vector<int32_t>({2, 1, 0}));
	ck_assert(ours(PLUMB_TIES_TORCH, v, 3) == std::vector<int32_t>({2, 1, 0}));
	v = {NAN, NAN, NAN};
	ck_assert(ours(PLUMB_TIES_LOWER, v, 2) == std::vector<int32_t>({0, 1}));
	v = {-0.0f, 0.0f, -0.0f};
	ck_assert(ours(PLUMB_TIES_LOWER, v, 2) == std::vector<int32_t>({0, 1}));
}
END_TEST

int main()
{
	Suite *s = suite_create("topk");
	TCase *c = suite_part(s, "rules", 120);
	tcase_add_test(c, both_rules);
	tcase_add_test(c, rules_differ_on_ties);
	tcase_add_test(c, edges);
	return suite_run(s);
}

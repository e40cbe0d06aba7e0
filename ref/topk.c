/* SPDX-License-Identifier: MIT */
/* The torch rule needs libstdc++'s own order of comparisons and exchanges: which of several equal values ends up inside
 * the cut depends on nothing else. Written from the algorithms' published behaviour: introselect and introsort with the
 * median of first+1, middle and last-1, cut-off 16 for sorting and 3 for selecting, binary heaps at the depth limit. */
#include "ref/topk.h"

#include <math.h>

/* ---- larger value first, NaN first: torch's comparison ---- */

static bool before(struct topk_item x, struct topk_item y)
{
	return (isnan(x.value) && !isnan(y.value)) || x.value > y.value;
}

static void swap(struct topk_item *x, struct topk_item *y)
{
	struct topk_item t = *x;
	*x = *y;
	*y = t;
}

static int log2_floor(int32_t n)
{
	int l = 0;
	while (n > 1) {
		n >>= 1;
		l++;
	}
	return l;
}

/* Sift value down from hole to a leaf, then up to where it belongs: heap of n items, best last at the root. */
static void adjust_heap(struct topk_item *first, int32_t hole, int32_t n, struct topk_item value)
{
	int32_t top = hole, child = hole;
	while (child < (n - 1) / 2) {
		child = 2 * (child + 1);
		if (before(first[child], first[child - 1]))
			child--;
		first[hole] = first[child];
		hole = child;
	}
	if ((n & 1) == 0 && child == (n - 2) / 2) {
		child = 2 * (child + 1);
		first[hole] = first[child - 1];
		hole = child - 1;
	}
	int32_t parent = (hole - 1) / 2;
	while (hole > top && before(first[parent], value)) {
		first[hole] = first[parent];
		hole = parent;
		parent = (hole - 1) / 2;
	}
	first[hole] = value;
}

/* Keep the (middle - first) items that come first, as a heap. */
static void heap_select(struct topk_item *first, struct topk_item *middle, struct topk_item *last)
{
	int32_t n = (int32_t)(middle - first);
	if (n >= 2)
		for (int32_t parent = (n - 2) / 2; parent >= 0; parent--)
			adjust_heap(first, parent, n, first[parent]);
	for (struct topk_item *i = middle; i < last; i++)
		if (before(*i, *first)) {
			struct topk_item value = *i;
			*i = *first;
			adjust_heap(first, 0, n, value);
		}
}

static void sort_heap(struct topk_item *first, struct topk_item *last)
{
	while (last - first > 1) {
		struct topk_item value = *--last;
		*last = *first;
		adjust_heap(first, 0, (int32_t)(last - first), value);
	}
}

static void move_median_to_first(struct topk_item *result, struct topk_item *a, struct topk_item *b, struct topk_item *c)
{
	if (before(*a, *b)) {
		if (before(*b, *c))
			swap(result, b);
		else if (before(*a, *c))
			swap(result, c);
		else
			swap(result, a);
	} else if (before(*a, *c)) {
		swap(result, a);
	} else if (before(*b, *c)) {
		swap(result, c);
	} else {
		swap(result, b);
	}
}

/* Partition around the median of three, which is moved to *first and serves as the guard. */
static struct topk_item *partition_pivot(struct topk_item *first, struct topk_item *last)
{
	struct topk_item *middle = first + (last - first) / 2, *pivot = first;
	move_median_to_first(first, first + 1, middle, last - 1);
	first++;
	for (;;) {
		while (before(*first, *pivot))
			first++;
		last--;
		while (before(*pivot, *last))
			last--;
		if (!(first < last))
			return first;
		swap(first, last);
		first++;
	}
}

/* Insert *at into the sorted range before it; an item that no other comes before stops the walk. */
static void linear_insert(struct topk_item *at)
{
	struct topk_item value = *at;
	while (before(value, at[-1])) {
		*at = at[-1];
		at--;
	}
	*at = value;
}

static void insertion_sort(struct topk_item *first, struct topk_item *last)
{
	for (struct topk_item *i = first + 1; i < last; i++) {
		if (before(*i, *first)) {
			struct topk_item value = *i;
			for (struct topk_item *j = i; j > first; j--)
				*j = j[-1];
			*first = value;
		} else {
			linear_insert(i);
		}
	}
}

static void nth_element(struct topk_item *first, struct topk_item *nth, struct topk_item *last)
{
	if (first == last || nth == last)
		return;
	int depth = 2 * log2_floor((int32_t)(last - first));
	while (last - first > 3) {
		if (depth-- == 0) {
			heap_select(first, nth + 1, last);
			swap(first, nth);
			return;
		}
		struct topk_item *cut = partition_pivot(first, last);
		if (cut <= nth)
			first = cut;
		else
			last = cut;
	}
	insertion_sort(first, last);
}

enum { SORT_CUTOFF = 16 };

static void introsort_loop(struct topk_item *first, struct topk_item *last, int depth)
{
	while (last - first > SORT_CUTOFF) {
		if (depth-- == 0) {
			heap_select(first, last, last);
			sort_heap(first, last);
			return;
		}
		struct topk_item *cut = partition_pivot(first, last);
		introsort_loop(cut, last, depth);
		last = cut;
	}
}

static void sort(struct topk_item *first, struct topk_item *last)
{
	if (first == last)
		return;
	introsort_loop(first, last, 2 * log2_floor((int32_t)(last - first)));
	if (last - first > SORT_CUTOFF) {
		insertion_sort(first, first + SORT_CUTOFF);
		for (struct topk_item *i = first + SORT_CUTOFF; i < last; i++)
			linear_insert(i);
	} else {
		insertion_sort(first, last);
	}
}

static void torch_topk(struct topk_item *item, int32_t n, int32_t k)
{
	if ((int64_t)k * 64 <= n) {
		heap_select(item, item + k, item + n);
		sort_heap(item, item + k);
	} else {
		nth_element(item, item + k - 1, item + n);
		sort(item, item + k - 1);
	}
}

/* ---- larger value first, then lower index, NaN last: the rule of both sets ---- */

static bool better(struct topk_item x, struct topk_item y)
{
	if (isnan(x.value) || isnan(y.value))
		return isnan(x.value) && isnan(y.value) ? x.index < y.index : isnan(y.value);
	return x.value > y.value || (x.value == y.value && x.index < y.index);
}

/* A heap of the k best so far with the worst at the root: n log k, so that 65,536 blocks are no trouble. */
static void sift_down(struct topk_item *heap, int32_t k, int32_t i)
{
	for (;;) {
		int32_t worst = i, l = 2 * i + 1;
		if (l < k && better(heap[worst], heap[l]))
			worst = l;
		if (l + 1 < k && better(heap[worst], heap[l + 1]))
			worst = l + 1;
		if (worst == i)
			return;
		swap(&heap[i], &heap[worst]);
		i = worst;
	}
}

static void lower_topk(struct topk_item *item, int32_t n, int32_t k)
{
	for (int32_t i = k / 2 - 1; i >= 0; i--)
		sift_down(item, k, i);
	for (int32_t i = k; i < n; i++)
		if (better(item[i], item[0])) {
			item[0] = item[i];
			sift_down(item, k, 0);
		}
	for (int32_t m = k - 1; m > 0; m--) {
		swap(&item[0], &item[m]);
		sift_down(item, m, 0);
	}
}

void topk_ref(enum plumb_ties ties, const float *value, int32_t n, int32_t k, struct topk_item *item, int32_t *out)
{
	if (k <= 0)
		return;
	for (int32_t i = 0; i < n; i++)
		item[i] = (struct topk_item){value[i], i};
	if (ties == PLUMB_TIES_TORCH)
		torch_topk(item, n, k);
	else
		lower_topk(item, n, k);
	for (int32_t i = 0; i < k; i++)
		out[i] = item[i].index;
}

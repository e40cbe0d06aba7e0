/* SPDX-License-Identifier: MIT */
/* The child process that alone lets the HDF5 library at a file. See golden/h5.h for what it accepts and why. */
#include "golden/h5_child.h"

#include <hdf5.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* deflate makes at most 1032 bytes of one (258 bytes of a 2-bit code); a little more allows for rounding. */
#define MAX_INFLATION 1040u

/* Processor seconds for the list, and for the values of one dataset besides one for each 16 MiB of them (a tenth of
 * what gunzip does). The list of a golden file takes 0.01 s. */
#define PATIENCE_SECONDS 5
#define BYTES_PER_SECOND ((uint64_t)16 << 20)

/* Working memory beyond the values asked for: chunk cache, B-trees, object headers. */
#define WORKING_BYTES ((rlim_t)1 << 30)

struct child {
	int fd;
	hid_t file, lapl;
	uint64_t file_size;
	rlim_t address_space; /* of this process before the file was opened, in bytes */
	char **name;          /* (entries) */
	uint32_t entries, groups, attributes;
	haddr_t ancestor[PLUMB_H5_MAX_DEPTH]; /* groups that enclose the current one */
	char text[512];                       /* of the failure */
};

static int fail(struct child *child, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(struct child *child, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(child->text, sizeof child->text, format, ap);
	va_end(ap);
	return -1;
}

/* The innermost line of the library's error stack says most: "truncated file: eof = 96, ...". */
static herr_t innermost(unsigned n, const H5E_error2_t *error, void *context)
{
	char *text = context;

	if (n == 0 && error->desc)
		snprintf(text, 128, "%s", error->desc);
	return 0;
}

static int fail_hdf5(struct child *child, const char *what, const char *name)
{
	char text[128] = "no further detail";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, text);
	return fail(child, "%s%s%s: %s", name, name[0] ? ": " : "", what, text);
}

static void send_bytes(const struct child *child, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = send(child->fd, at, size, MSG_NOSIGNAL);
		if (n <= 0)
			_exit(1); /* nobody is listening any more */
		at += n;
		size -= (size_t)n;
	}
}

static void send_header(const struct child *child, enum plumb_h5_kind kind, size_t size)
{
	struct plumb_h5_header header = {.kind = (uint32_t)kind, .size = (uint32_t)size};

	send_bytes(child, &header, sizeof header);
}

static void send_failure(const struct child *child)
{
	send_header(child, PLUMB_H5_FAILED, strlen(child->text));
	send_bytes(child, child->text, strlen(child->text));
}

/* Types that convert without surprise. A float type is whatever its fields say: only the four known ones are taken. */
static enum plumb_h5_type classify(hid_t type)
{
	static const struct {
		size_t size, exponent, exponent_size, mantissa_size, bias;
	} known[] = {
		{2, 10, 5, 10, 15},    /* float16 */
		{2, 7, 8, 7, 127},     /* bfloat16 */
		{4, 23, 8, 23, 127},   /* float32 */
		{8, 52, 11, 52, 1023}, /* float64 */
	};
	size_t size = H5Tget_size(type);

	if (H5Tget_offset(type) != 0 || H5Tget_precision(type) != 8 * size)
		return PLUMB_H5_OTHER;
	if (H5Tget_class(type) == H5T_INTEGER)
		return size == 1 || size == 2 || size == 4 || size == 8 ? PLUMB_H5_INT : PLUMB_H5_OTHER;
	if (H5Tget_class(type) != H5T_FLOAT || (H5Tget_order(type) != H5T_ORDER_LE && H5Tget_order(type) != H5T_ORDER_BE))
		return PLUMB_H5_OTHER;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		size_t sign, exponent, exponent_size, mantissa, mantissa_size;

		if (H5Tget_fields(type, &sign, &exponent, &exponent_size, &mantissa, &mantissa_size) < 0)
			return PLUMB_H5_OTHER;
		if (size == known[i].size && sign == 8 * size - 1 && exponent == known[i].exponent &&
			exponent_size == known[i].exponent_size && mantissa == 0 &&
			mantissa_size == known[i].mantissa_size && H5Tget_ebias(type) == known[i].bias &&
			H5Tget_norm(type) == H5T_NORM_IMPLIED)
			return PLUMB_H5_FLOAT;
	}
	return PLUMB_H5_OTHER;
}

/* a * b, or UINT64_MAX when that is too much: still larger than anything it is compared with. */
static uint64_t saturating_product(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static int check_filters(struct child *child, const char *name, hid_t plist, bool *inflates)
{
	int filters = H5Pget_nfilters(plist), deflates = 0;

	if (filters < 0)
		return fail_hdf5(child, "filter list", name);
	for (int i = 0; i < filters; i++) {
		unsigned flags, config;
		size_t values = 0;
		H5Z_filter_t filter = H5Pget_filter2(plist, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);

		if (filter < 0)
			return fail_hdf5(child, "filter list", name);
		deflates += filter == H5Z_FILTER_DEFLATE;
		if ((filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32) ||
			deflates > 1)
			return fail(child, "%s: filter %d at place %d, expected shuffle, gzip, fletcher32, each once", name,
				(int)filter, i);
	}
	*inflates = deflates > 0;
	return 0;
}

/* Every chunk must be there and be able to hold what it stands for. */
static int check_chunks(struct child *child, const char *name, hid_t dataset, hid_t plist, hid_t space,
	const struct plumb_h5_entry_message *entry, uint64_t value_size, uint64_t capacity)
{
	hsize_t chunk[PLUMB_H5_RANK], there = 0;
	uint64_t demanded = 1, chunk_bytes = value_size;

	if (H5Pget_chunk(plist, PLUMB_H5_RANK, chunk) != entry->rank)
		return fail(child, "%s: chunks of another rank, expected %d", name, (int)entry->rank);
	for (int i = 0; i < entry->rank; i++) {
		uint64_t dim = (uint64_t)entry->dim[i];

		if (chunk[i] == 0)
			return fail(child, "%s: chunks of size 0", name);
		demanded = saturating_product(demanded, dim / chunk[i] + (dim % chunk[i] != 0));
		chunk_bytes = saturating_product(chunk_bytes, chunk[i]);
	}
	if (demanded == 0)
		return 0;
	if (chunk_bytes > capacity)
		return fail(child, "%s: chunks of %" PRIu64 " bytes, its stored bytes hold at most %" PRIu64, name,
			chunk_bytes, capacity);
	if (H5Dget_num_chunks(dataset, space, &there) < 0)
		return fail_hdf5(child, "chunk index", name);
	if (there != demanded)
		return fail(child, "%s: %" PRIu64 " chunks written, expected %" PRIu64, name, (uint64_t)there, demanded);
	return 0;
}

/* Storage first: nothing is asked of the data space before it is known that the dataset lives in this file. */
static int check_storage(struct child *child, const char *name, hid_t dataset, hid_t plist, hid_t type, hid_t space,
	const struct plumb_h5_entry_message *entry, H5D_layout_t layout)
{
	uint64_t value_size = H5Tget_size(type), bytes = value_size;
	uint64_t stored = H5Dget_storage_size(dataset), capacity = stored;
	bool inflates = false;

	for (int i = 0; i < entry->rank; i++)
		bytes = saturating_product(bytes, (uint64_t)entry->dim[i]);
	if (stored > child->file_size)
		return fail(child, "%s: %" PRIu64 " stored bytes, the file has %" PRIu64, name, stored, child->file_size);
	if (layout == H5D_CHUNKED) {
		if (check_filters(child, name, plist, &inflates) < 0)
			return -1;
		if (inflates)
			capacity = saturating_product(stored, MAX_INFLATION);
	}
	if (bytes > capacity)
		return fail(child,
			"%s: claims %" PRIu64 " bytes of values, its %" PRIu64 " stored bytes hold at most %" PRIu64, name,
			bytes, stored, capacity);
	if (layout == H5D_CHUNKED)
		return check_chunks(child, name, dataset, plist, space, entry, value_size, capacity);
	return 0;
}

static int check_space(struct child *child, const char *name, hid_t space, struct plumb_h5_entry_message *entry)
{
	hsize_t dim[H5S_MAX_RANK];
	int rank = H5Sget_simple_extent_ndims(space);
	int64_t count = 1;

	if (H5Sget_simple_extent_type(space) == H5S_NULL)
		return fail(child, "%s: a null data space, expected an array", name);
	if (rank < 0)
		return fail_hdf5(child, "data space", name);
	if (rank > PLUMB_H5_RANK)
		return fail(child, "%s: rank %d, expected at most %d", name, rank, PLUMB_H5_RANK);
	if (H5Sget_simple_extent_dims(space, dim, NULL) != rank)
		return fail_hdf5(child, "data space", name);
	entry->rank = rank;
	for (int i = 0; i < rank; i++) {
		if (dim[i] > INT64_MAX || __builtin_mul_overflow(count, (int64_t)dim[i], &count))
			return fail(child, "%s: 2^63 elements or more", name);
		entry->dim[i] = (int64_t)dim[i];
	}
	return 0;
}

static int check_dataset(struct child *child, const char *name, hid_t dataset, struct plumb_h5_entry_message *entry)
{
	int status = -1;
	hid_t plist = H5Dget_create_plist(dataset), type = -1, space = -1;
	H5D_layout_t layout;

	memset(entry, 0, sizeof *entry);
	if (plist < 0) {
		fail_hdf5(child, "creation properties", name);
		goto out;
	}
	layout = H5Pget_layout(plist);
	if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED) {
		fail(child, "%s: %s storage, expected data inside the file", name,
			layout == H5D_VIRTUAL ? "virtual" : "unknown");
		goto out;
	}
	if (H5Pget_external_count(plist) != 0) {
		fail(child, "%s: stored in an external file, expected data inside the file", name);
		goto out;
	}
	type = H5Dget_type(dataset);
	space = H5Dget_space(dataset);
	if (type < 0 || space < 0) {
		fail_hdf5(child, "type and data space", name);
		goto out;
	}
	if (check_space(child, name, space, entry) < 0)
		goto out;
	entry->type = (int32_t)classify(type);
	/* What cannot be read needs no room: a string's bytes lie elsewhere. */
	if (entry->type != PLUMB_H5_OTHER && check_storage(child, name, dataset, plist, type, space, entry, layout) < 0)
		goto out;
	status = 0;
out:
	if (space >= 0)
		H5Sclose(space);
	if (type >= 0)
		H5Tclose(type);
	if (plist >= 0)
		H5Pclose(plist);
	return status;
}

static int add_dataset(struct child *child, const char *name, hid_t dataset)
{
	struct plumb_h5_entry_message entry;

	if (check_dataset(child, name, dataset, &entry) < 0)
		return -1;
	child->name[child->entries] = strdup(name);
	if (!child->name[child->entries])
		return fail(child, "%s: out of memory", name);
	child->entries++;
	send_header(child, PLUMB_H5_ENTRY, sizeof entry + strlen(name));
	send_bytes(child, &entry, sizeof entry);
	send_bytes(child, name, strlen(name));
	return 0;
}

/* Read a scalar attribute of text into buffer; -1: not one, or longer than PLUMB_H5_MAX_TEXT - 1 bytes. */
static int read_text(hid_t attribute, hid_t type, char *buffer)
{
	int status = -1;
	hid_t memory = H5Tcopy(H5T_C_S1);

	if (memory < 0)
		return -1;
	/* The memory type takes the file's character set: the library converts none into another. */
	H5Tset_cset(memory, H5Tget_cset(type));
	if (H5Tis_variable_str(type) > 0) {
		char *text = NULL;
		H5Tset_size(memory, H5T_VARIABLE);
		size_t n = H5Aread(attribute, memory, &text) >= 0 && text ? strlen(text) : PLUMB_H5_MAX_TEXT;
		if (n < PLUMB_H5_MAX_TEXT) {
			memcpy(buffer, text, n + 1);
			status = 0;
		}
		H5free_memory(text);
	} else {
		H5Tset_size(memory, PLUMB_H5_MAX_TEXT);
		if (H5Tget_size(type) < PLUMB_H5_MAX_TEXT && H5Aread(attribute, memory, buffer) >= 0) {
			buffer[PLUMB_H5_MAX_TEXT - 1] = '\0';
			status = 0;
		}
	}
	H5Tclose(memory);
	return status;
}

struct attribute_walk {
	struct child *child;
	const char *object;
};

/* A scalar number or string; anything else is left out. */
static int read_attribute(hid_t attribute, hid_t type, hid_t space, struct plumb_h5_attribute_message *message, char *text)
{
	if (H5Sget_simple_extent_type(space) != H5S_SCALAR)
		return -1;
	if (H5Tget_class(type) == H5T_STRING) {
		message->type = PLUMB_H5_TEXT;
		return read_text(attribute, type, text);
	}
	switch (classify(type)) {
	case PLUMB_H5_INT:
		message->type = PLUMB_H5_INTEGER;
		return H5Aread(attribute, H5T_NATIVE_INT64, &message->integer) < 0 ? -1 : 0;
	case PLUMB_H5_FLOAT:
		message->type = PLUMB_H5_REAL;
		return H5Aread(attribute, H5T_NATIVE_DOUBLE, &message->real) < 0 ? -1 : 0;
	default:
		return -1;
	}
}

static herr_t add_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
	struct attribute_walk *walk = context;
	struct child *child = walk->child;
	struct plumb_h5_attribute_message message = {.type = PLUMB_H5_TEXT};
	herr_t status = 0;
	char *text = calloc(1, PLUMB_H5_MAX_TEXT);
	hid_t attribute = -1, type = -1, space = -1;

	(void)info;
	if (!text)
		return fail(child, "attribute %s: out of memory", name);
	if (++child->attributes > PLUMB_H5_MAX_ATTRIBUTES || strlen(name) >= PLUMB_H5_MAX_NAME) {
		status = fail(child, "attribute %s of /%s: expected at most %d attributes, names below %d bytes", name,
			walk->object, PLUMB_H5_MAX_ATTRIBUTES, PLUMB_H5_MAX_NAME);
		goto out;
	}
	attribute = H5Aopen(object, name, H5P_DEFAULT);
	type = attribute < 0 ? -1 : H5Aget_type(attribute);
	space = attribute < 0 ? -1 : H5Aget_space(attribute);
	if (type < 0 || space < 0) {
		status = fail_hdf5(child, "attribute", name);
		goto out;
	}
	if (read_attribute(attribute, type, space, &message, text) < 0)
		goto out;
	message.object_size = (uint32_t)strlen(walk->object);
	message.name_size = (uint32_t)strlen(name);
	message.text_size = (uint32_t)strlen(text);
	send_header(
		child, PLUMB_H5_ATTRIBUTE, sizeof message + message.object_size + message.name_size + message.text_size);
	send_bytes(child, &message, sizeof message);
	send_bytes(child, walk->object, message.object_size);
	send_bytes(child, name, message.name_size);
	send_bytes(child, text, message.text_size);
out:
	if (space >= 0)
		H5Sclose(space);
	if (type >= 0)
		H5Tclose(type);
	if (attribute >= 0)
		H5Aclose(attribute);
	free(text);
	return status;
}

static int add_attributes(struct child *child, const char *object_name, hid_t object)
{
	struct attribute_walk walk = {.child = child, .object = object_name};

	child->text[0] = '\0';
	if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, add_attribute, &walk) < 0)
		return child->text[0] ? -1 : fail_hdf5(child, "attributes", object_name);
	return 0;
}

struct link_walk {
	struct child *child;
	const char *path; /* of the group */
	int depth;
};

static int add_group(struct child *child, const char *path, hid_t group, haddr_t address, int depth);

static int add_object(struct child *child, const char *path, hid_t object, int depth)
{
	H5O_info_t info;

	if (H5Oget_info2(object, &info, H5O_INFO_BASIC) < 0)
		return fail_hdf5(child, "object header", path);
	if (info.type == H5O_TYPE_GROUP)
		return add_group(child, path, object, info.addr, depth);
	if (info.type != H5O_TYPE_DATASET)
		return 0; /* a named type: nobody reads it */
	if (add_attributes(child, path, object) < 0)
		return -1;
	return add_dataset(child, path, object);
}

static herr_t add_link(hid_t group, const char *name, const H5L_info_t *link, void *context)
{
	struct link_walk *walk = context;
	struct child *child = walk->child;
	char path[PLUMB_H5_MAX_NAME];
	int size = snprintf(path, sizeof path, "%s%s%s", walk->path, walk->path[0] ? "/" : "", name);
	herr_t status;
	hid_t object;

	if (size < 0 || size >= (int)sizeof path)
		return fail(
			child, "a name of %d bytes inside /%.200s, expected below %d", size, walk->path, PLUMB_H5_MAX_NAME);
	/* "a/b" or "." as the name of one link is no name but a path, which could lead through a link not yet looked
	 * at. */
	if (name[0] == '\0' || strcmp(name, ".") == 0 || strchr(name, '/'))
		return fail(child, "%s: not a name", path);
	if (link->type != H5L_TYPE_HARD)
		return fail(child, "%s: %s link, expected a dataset or group of this file", path,
			link->type == H5L_TYPE_SOFT       ? "a soft"
			: link->type == H5L_TYPE_EXTERNAL ? "an external"
							  : "a user-defined");
	if (child->entries + child->groups >= PLUMB_H5_MAX_ENTRIES)
		return fail(child, "%s: more than %d datasets and groups", path, PLUMB_H5_MAX_ENTRIES);
	object = H5Oopen(group, name, child->lapl);
	if (object < 0)
		return fail_hdf5(child, "cannot be opened", path);
	status = add_object(child, path, object, walk->depth);
	H5Oclose(object);
	return status;
}

static int add_group(struct child *child, const char *path, hid_t group, haddr_t address, int depth)
{
	struct link_walk walk = {.child = child, .path = path, .depth = depth + 1};

	if (depth >= PLUMB_H5_MAX_DEPTH)
		return fail(
			child, "%.200s: groups nested %d deep, expected at most %d", path, depth + 1, PLUMB_H5_MAX_DEPTH);
	for (int i = 0; i < depth; i++)
		if (child->ancestor[i] == address)
			return fail(child, "%s: a group inside itself", path);
	child->ancestor[depth] = address;
	child->groups++;
	if (add_attributes(child, path, group) < 0)
		return -1;
	child->text[0] = '\0';
	if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, add_link, &walk) < 0)
		return child->text[0] ? -1 : fail_hdf5(child, "links", path);
	return 0;
}

static herr_t refuse_external_link(const char *parent_file, const char *parent_group, const char *child_file,
	const char *child_object, unsigned *flags, hid_t fapl, void *context)
{
	(void)parent_file;
	(void)parent_group;
	(void)child_file;
	(void)child_object;
	(void)flags;
	(void)fapl;
	(void)context;
	return -1;
}

/* Set the limit that counts, and for good where it will not have to be raised again. */
static void limit(int resource, rlim_t most, bool for_good)
{
	struct rlimit value;

	if (getrlimit(resource, &value) < 0)
		_exit(1);
	value.rlim_cur = value.rlim_max == RLIM_INFINITY || most < value.rlim_max ? most : value.rlim_max;
	if (for_good)
		value.rlim_max = value.rlim_cur;
	if (setrlimit(resource, &value) < 0)
		_exit(1);
}

static void limit_memory(const struct child *child, uint64_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	(void)child; /* the sanitizer maps terabytes of shadow */
	(void)bytes;
#else
	limit(RLIMIT_AS, child->address_space + WORKING_BYTES + 2 * (rlim_t)bytes, false);
#endif
}

/* A damaged file can send the library round in circles: the kernel ends that (SIGXCPU). */
static void limit_time(uint64_t seconds)
{
	struct rusage used;

	if (getrusage(RUSAGE_SELF, &used) < 0)
		_exit(1);
	limit(RLIMIT_CPU, (rlim_t)used.ru_utime.tv_sec + (rlim_t)used.ru_stime.tv_sec + 1 + (rlim_t)seconds, false);
}

static rlim_t address_space(void)
{
	unsigned long pages = 0;
	char text[64];
	FILE *statm = fopen("/proc/self/statm", "r");

	if (!statm)
		return (rlim_t)1 << 46; /* no /proc: as good as no limit */
	if (fgets(text, sizeof text, statm))
		pages = strtoul(text, NULL, 10);
	if (pages == 0 || pages == ULONG_MAX)
		pages = 1ul << 34;
	fclose(statm);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int open_file(struct child *child, const char *path)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
	hsize_t size = 0;

	child->lapl = H5Pcreate(H5P_LINK_ACCESS);
	child->name = calloc(PLUMB_H5_MAX_ENTRIES, sizeof *child->name);
	if (fapl < 0 || child->lapl < 0 || !child->name)
		return fail(child, "out of memory");
	H5Pset_fapl_sec2(fapl);
#if H5_VERSION_GE(1, 10, 7)
	H5Pset_file_locking(fapl, 0, 1); /* read-only file systems and network mounts refuse locks; we only read */
#endif
	H5Pset_elink_cb(child->lapl, refuse_external_link, NULL);
	H5Lunregister(H5L_TYPE_EXTERNAL);
	H5PLset_loading_state(0);
	child->file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
	if (child->file < 0)
		return fail_hdf5(child, "cannot be read as HDF5", ""); /* any further call would clear the reason */
	H5Pclose(fapl);
	if (H5Fget_filesize(child->file, &size) < 0)
		return fail_hdf5(child, "size", "");
	child->file_size = size;
	/* Whatever the file names, and whatever the checks below might miss: from here on nothing else can be
	 * opened. */
	limit(RLIMIT_NOFILE, 0, true);
	return 0;
}

static int send_list(struct child *child, const char *path)
{
	H5O_info_t info;
	int status;
	hid_t root;

	if (open_file(child, path) < 0)
		return -1;
	root = H5Gopen2(child->file, "/", H5P_DEFAULT);
	if (root < 0)
		return fail_hdf5(child, "root group", "");
	if (H5Oget_info2(root, &info, H5O_INFO_BASIC) < 0)
		return fail_hdf5(child, "root group", "");
	status = add_group(child, "", root, info.addr, 0);
	H5Gclose(root);
	return status;
}

/* Whether a dataset of integers holds single bytes. */
static bool is_bytes(hid_t dataset)
{
	hid_t type = H5Dget_type(dataset);
	bool yes = type >= 0 && H5Tget_size(type) == 1 && H5Tget_sign(type) == H5T_SGN_NONE;

	if (type >= 0)
		H5Tclose(type);
	return yes;
}

/* Select the rows asked for; *count: their elements. The space of the file is released by the caller. */
static int select_rows(struct child *child, const char *name, const struct plumb_h5_entry_message *entry,
	const struct plumb_h5_request *request, hid_t space, size_t *count)
{
	hsize_t start[PLUMB_H5_RANK] = {0}, size[PLUMB_H5_RANK];
	const int axis = plumb_h5_row_axis(entry->rank, entry->dim);

	for (int i = 0; i < entry->rank; i++)
		size[i] = (hsize_t)entry->dim[i];
	if (request->count >= 0) {
		if (entry->rank == 0 || request->first < 0 || request->first > entry->dim[axis] ||
			request->count > entry->dim[axis] - request->first)
			return fail(child, "%s: no rows %" PRId64 " to %" PRId64, name, request->first,
				request->first + request->count - 1);
		start[axis] = (hsize_t)request->first;
		size[axis] = (hsize_t)request->count;
		if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) < 0)
			return fail_hdf5(child, "rows cannot be selected", name);
	}
	*count = 1;
	for (int i = 0; i < entry->rank; i++)
		*count *= (size_t)size[i]; /* at most 1040 times the file, as check_storage saw to */
	return 0;
}

static int send_values(struct child *child, const struct plumb_h5_request *request)
{
	int status = -1;
	struct plumb_h5_entry_message entry;
	bool bytes = request->want == PLUMB_H5_AS_U8;
	size_t size = bytes ? 1 : request->want == PLUMB_H5_AS_F32 ? sizeof(float) : sizeof(int64_t), count = 1;
	hid_t memory = bytes ? H5T_NATIVE_UINT8 : request->want == PLUMB_H5_AS_F32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT64;
	hid_t dataset, space = -1, packed = -1;
	hsize_t elements;
	const char *name;
	void *values = NULL;

	if (request->entry >= child->entries)
		return fail(child, "no dataset %" PRIu32, request->entry);
	name = child->name[request->entry];
	dataset = H5Dopen2(child->file, name, H5P_DEFAULT);
	if (dataset < 0)
		return fail_hdf5(child, "cannot be opened", name);
	if (check_dataset(child, name, dataset, &entry) < 0)
		goto out;
	if (bytes && !is_bytes(dataset)) {
		fail(child, "%s: values of another type, expected unsigned integers of 8 bits", name);
		goto out;
	}
	space = H5Dget_space(dataset);
	if (space < 0) {
		fail_hdf5(child, "data space", name);
		goto out;
	}
	if (select_rows(child, name, &entry, request, space, &count) < 0)
		goto out;
	limit_memory(child, saturating_product(count, size));
	limit_time(PATIENCE_SECONDS + saturating_product(count, size) / BYTES_PER_SECOND);
	values = malloc(count * size + 1);
	elements = (hsize_t)count;
	packed = H5Screate_simple(1, &elements, NULL);
	if (!values || packed < 0) {
		fail(child, "%s: out of memory for %zu values", name, count);
		goto out;
	}
	if (count > 0 && H5Dread(dataset, memory, request->count < 0 ? H5S_ALL : packed,
				 request->count < 0 ? H5S_ALL : space, H5P_DEFAULT, values) < 0) {
		fail_hdf5(child, "cannot be decoded", name);
		goto out;
	}
	send_header(child, PLUMB_H5_DATA, 0);
	send_bytes(child, values, count * size);
	status = 0;
out:
	free(values);
	if (packed >= 0)
		H5Sclose(packed);
	if (space >= 0)
		H5Sclose(space);
	H5Dclose(dataset);
	return status;
}

_Noreturn void plumb_h5_serve(const char *path, int fd)
{
	struct child child = {.fd = fd, .address_space = address_space()};
	struct plumb_h5_request request;

	/* A fault ends this process quietly: no core file, no handler of the caller's. */
	limit(RLIMIT_CORE, 0, true);
	limit(RLIMIT_FSIZE, 0, true);
#ifndef __SANITIZE_ADDRESS__
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
#endif
	limit_memory(&child, 0);
	limit_time(PATIENCE_SECONDS);
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);

	if (send_list(&child, path) < 0) {
		send_failure(&child);
		_exit(0);
	}
	send_header(&child, PLUMB_H5_READY, 0);
	while (recv(fd, &request, sizeof request, MSG_WAITALL) == (ssize_t)sizeof request)
		if (send_values(&child, &request) < 0)
			send_failure(&child);
	_exit(0);
}

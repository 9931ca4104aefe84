/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap: any sizes, alignments and orders of soda_malloc() and its family, in a runtime with a
 * private server.  What is given lies where nothing else does, is as large and as aligned as was
 * asked for, zeros from calloc, and keeps its content. ops: what 8, which 8, sizes: kind 8 and a
 * number of as many bytes
 */
#include <errno.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "soda.h"

enum { BLOCKS = 16, LOOK_MAX = 64 << 10, OPS_MAX = 100 };

static struct block {
	uint8_t *at;
	size_t bytes;
	uint8_t mark;
} blocks[BLOCKS];
static uint8_t marks;

/* Small ones mostly; near powers of two; near what overflows. */
static size_t take_size(struct fuzz_input *in)
{
	uint8_t kind = fuzz_u8(in);
	size_t near = (size_t)1 << (kind & 63);

	switch (kind >> 6) {
	case 0:
		return fuzz_u16(in);
	case 1:
		return near + (size_t)(int8_t)fuzz_u8(in);
	case 2:
		return SIZE_MAX - fuzz_u16(in);
	default:
		return fuzz_u64(in);
	}
}

static size_t shown(size_t bytes)
{
	return bytes < LOOK_MAX ? bytes : LOOK_MAX;
}

/* Both ends: a heap of gigabytes need not be touched. */
static void fill(struct block *b)
{
	memset(b->at, b->mark, shown(b->bytes));
	memset(b->at + b->bytes - shown(b->bytes), b->mark, shown(b->bytes));
}

static void check(const struct block *b, size_t bytes)
{
	for (size_t i = 0; i < shown(bytes); i += 1 + i / 16)
		MUST(b->at[i] == b->mark);
}

static void forget(struct block *b)
{
	if (b->at) {
		check(b, b->bytes);
		if (b->bytes)
			MUST(b->at[b->bytes - 1] == b->mark);
	}
	soda_free(b->at);
	b->at = NULL;
}

static void keep(struct block *b, void *at, size_t bytes, size_t alignment)
{
	if (!at) {
		MUST(errno == ENOMEM || errno == EINVAL || errno == ENOTSUP);
		return;
	}
	MUST((uintptr_t)at % alignment == 0);
	for (struct block *other = blocks; other < blocks + BLOCKS; other++)
		MUST(!other->at || (uint8_t *)at + bytes <= other->at ||
		     other->at + other->bytes <= (uint8_t *)at);
	*b = (struct block){ at, bytes, ++marks };
	fill(b);
}

static void resize(struct block *b, size_t bytes)
{
	size_t before = b->bytes;
	uint8_t *at = soda_realloc(b->at, bytes);

	if (!at && bytes) {
		MUST(errno == ENOMEM || errno == ENOTSUP);
		return; /* the block is as it was */
	}
	b->at = NULL;
	if (!bytes && b->bytes) {
		MUST(!at || !before);
		return;
	}
	if (!at)
		return;
	*b = (struct block){ at, bytes, b->mark };
	if (before)
		check(b, before < bytes ? before : bytes);
	fill(b);
}

static void zeros(struct block *b, size_t n, size_t bytes)
{
	size_t all;
	bool fits = !__builtin_mul_overflow(n, bytes, &all);
	uint8_t *at = soda_calloc(n, bytes);

	MUST(!at || fits);
	for (size_t i = 0; at && i < shown(all); i++)
		MUST(!at[i]);
	keep(b, at, fits ? all : 0, 8);
}

static void step(struct fuzz_input *in)
{
	uint8_t what = fuzz_u8(in) % 6;
	struct block *b = &blocks[fuzz_u8(in) % BLOCKS];
	size_t bytes = what == 5 ? 0 : take_size(in), alignment;

	if (what == 4 && b->at) {
		resize(b, bytes);
		return;
	}
	forget(b);
	errno = 0;
	switch (what) {
	case 0:
	case 1:
		keep(b, soda_malloc(bytes), bytes, bytes >= 16 ? 16 : 8);
		break;
	case 2:
		zeros(b, bytes, take_size(in));
		break;
	case 3:
		alignment = take_size(in);
		keep(b, soda_aligned_alloc(alignment, bytes), bytes, alignment ? alignment : 1);
		break;
	default:
		break;
	}
}

static void quiet(int level, const char *message, void *arg)
{
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	static char program[512];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 64);

	MUST(n > 0);
	for (int up = 0; up < 3; up++)
		*strrchr(program, '/') = 0;
	strcat(program, "/src/mem_server/soda-mem-server");
	setenv("SODA_MEM_SERVER", program, 1);
	setenv("SODA_MEM_SERVER_CAPACITY", "256M",
	       1); /* what this process may map of it counts here, too */
	cfg.buffer = "64M";
	cfg.log = quiet;
	MUST(soda_init(&cfg) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	for (int i = 0; i < OPS_MAX && in.left; i++)
		step(&in);
	for (int i = 0; i < BLOCKS; i++)
		forget(&blocks[i]);
	return 0;
}

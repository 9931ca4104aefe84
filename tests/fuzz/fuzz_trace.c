/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page traces, as `soda bench` reads them.
 *   how 8: 1: a valid head goes before the rest | bytes of the file
 */
#include "base/page_trace.h"
#include "fuzz/fuzz.h"
#include "soda/bench/worker/trace.h"

static void check(const struct soda_bench_trace *t)
{
	uint32_t stores = 0;

	MUST(t->n > 0 && t->chunks > 0 && t->chunk_bytes >= 4096);
	for (uint32_t i = 0; i < t->n; i++) {
		MUST((t->access[i] & ~SODA_BENCH_STORE) < t->chunks);
		MUST(t->thread[i] < 4096);
		stores += (t->access[i] & SODA_BENCH_STORE) != 0;
	}
	MUST(stores == t->stores);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct soda_page_trace_head head = { .magic = SODA_PAGE_TRACE_MAGIC,
					     .version = SODA_PAGE_TRACE_VERSION,
					     .head_bytes = sizeof(head),
					     .chunk_bytes = 65536,
					     .limit = UINT64_MAX,
					     .asked = UINT64_MAX };
	struct fuzz_input in = { data, bytes };
	bool whole = fuzz_u8(&in) & 1;
	size_t begin = whole ? sizeof(head) : 0;
	uint8_t *file = malloc(begin + in.left + 1);
	struct soda_bench_trace trace;
	char why[256] = "", path[256];
	int ret;

	MUST(file);
	memcpy(file, &head, begin);
	if (in.left)
		memcpy(file + begin, in.at, in.left);
	fuzz_write(fuzz_path("trace", path), file, begin + in.left);
	free(file);
	ret = soda_bench_trace_load(path, &trace, why, sizeof(why));
	MUST(ret <= 0);
	if (ret < 0) {
		MUST(why[0]);
		return 0;
	}
	check(&trace);
	soda_bench_trace_free(&trace);
	return 0;
}

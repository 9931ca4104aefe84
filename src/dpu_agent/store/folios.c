/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages of a chunk that the kernel allocates, charges, maps and frees as one (a large folio, "mTHP"
 * of shared memory), where the operator allows them:
 *
 *   /sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled: advise (or more)
 *
 * Filling a chunk and punching it then cost half of what they cost page by page.  The kernel makes
 * large folios of shared memory at a page fault, by the mapping's alignment, and never in a
 * write(): so the agent maps each memfd, and has a chunk's pages made there before it writes them.
 * It does not copy through the mapping, because programs may punch what they have the descriptor
 * of: where memory has come to its end, a store to such a hole is a SIGBUS, and a write() an error.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dpu_agent/store/node_store_impl.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { SMALLEST = 16384 }; /* four pages: the kernel has no smaller ones */

static bool is_chosen(const char *words, const char *word)
{
	char chosen[24];

	snprintf(chosen, sizeof(chosen), "[%s]", word);
	return strstr(words, chosen);
}

/* What a file of the kernel says, which is a list of words, the valid one in brackets. */
static bool read_words(const char *path, char words[128])
{
	FILE *f = fopen(path, "re");
	bool got = f && fgets(words, 128, f);

	if (f)
		fclose(f);
	return got;
}

static bool allows(const char *words)
{
	return is_chosen(words, "advise") || is_chosen(words, "always") ||
	       is_chosen(words, "within_size") || is_chosen(words, "force");
}

static bool size_allowed(const char *folder, uint32_t bytes, const char *all)
{
	char path[256], words[128];

	snprintf(path, sizeof(path), "%s/hugepages-%ukB/shmem_enabled", folder, bytes >> 10);
	if (!read_words(path, words))
		return false;
	return is_chosen(words, "inherit") ? allows(all) : allows(words);
}

bool soda_node_folios_allowed(const char *folder, uint32_t chunk_bytes)
{
	char path[256], all[128];

	snprintf(path, sizeof(path), "%s/shmem_enabled", folder);
	if (!read_words(path, all) || is_chosen(all, "deny"))
		return false;
	for (uint32_t bytes = SMALLEST; bytes <= chunk_bytes; bytes *= 2)
		if (size_allowed(folder, bytes, all))
			return true;
	return false;
}

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/*
 * A folio lies in a mapping as it lies in the file.  So where the addresses are multiples of the
 * chunk's size, and of nothing larger, none is larger than a chunk: it would have to be split when
 * a chunk of it goes, and would have pages that nobody has counted.
 */
char *soda_node_map_view(int fd, uint64_t bytes, uint32_t chunk_bytes)
{
	size_t chunk = chunk_bytes, mapped = round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
	size_t span = mapped + 3 * chunk;
	char *all = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *view;

	if (all == MAP_FAILED)
		return NULL;
	view = all + (round_up((size_t)all, 2 * chunk) - (size_t)all) + chunk;
	if (mmap(view, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
		 0) == MAP_FAILED ||
	    madvise(view, mapped, MADV_HUGEPAGE)) {
		munmap(all, span);
		return NULL;
	}
	madvise(view, mapped, MADV_DONTDUMP);
	munmap(all, (size_t)(view - all));
	munmap(view + mapped, span - mapped - (size_t)(view - all));
	return view;
}

void soda_node_unmap_view(char *view, uint64_t bytes)
{
	if (view)
		munmap(view, round_up(bytes, (size_t)sysconf(_SC_PAGESIZE)));
}

void soda_node_make_pages(char *view, uint64_t at, uint32_t bytes)
{
	if (view)
		madvise(view + at, bytes, MADV_POPULATE_WRITE);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "ledger.h"

#include <string.h>

#include "../fibers.h"

enum { ENTRIES = 1 << 20, HEADS = 1 << 14 };

/* One encryption. */
struct entry {
	uint64_t key, version, first; /* the first word of what was sealed, by which it is found */
	struct sim_tag tag;
	uint32_t block;
	uint32_t next, next_version; /* with the same head; 0: no more */
};

static struct entry ledger[ENTRIES]; /* from 1 on */
static uint32_t entries_n = 1;
static uint32_t heads[HEADS], version_heads[HEADS];

uint64_t sim_ledger_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t sim_ledger_stream(uint64_t key, uint32_t block, uint64_t version)
{
	return sim_ledger_mix(sim_ledger_mix(key + block) + version);
}

struct sim_tag sim_ledger_tag(uint64_t stream, const uint64_t *sealed)
{
	struct sim_tag tag = { { stream, ~stream } };

	for (int i = 0; i < SIM_BLOCK_WORDS; i++) {
		tag.words[0] = (tag.words[0] ^ sealed[i]) * 0x9e3779b97f4a7c15u;
		tag.words[0] ^= tag.words[0] >> 29;
		tag.words[1] += sim_ledger_mix(tag.words[0]);
	}
	return tag;
}

bool sim_ledger_same(const struct sim_tag *a, const void *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static uint32_t *version_head(uint64_t key, uint64_t version)
{
	return &version_heads[sim_ledger_mix(key + version) % HEADS];
}

static void check_new(uint64_t key, uint32_t block, uint64_t version)
{
	for (uint32_t i = *version_head(key, version); i; i = ledger[i].next_version)
		if (ledger[i].key == key && ledger[i].version == version)
			sim_fail("NONCE TWICE: version %llu seals block %u, and has sealed block "
				 "%u with the same key",
				 (unsigned long long)version, block, ledger[i].block);
}

void sim_ledger_note(uint64_t key, uint32_t block, uint64_t version, const uint64_t *sealed,
		     struct sim_tag tag)
{
	uint32_t *head = &heads[sealed[0] % HEADS], *versions = version_head(key, version);

	if (entries_n == ENTRIES)
		sim_fail("the ledger of what was sealed has no room");
	if (!version)
		sim_fail("NONCE TWICE: a block is sealed with version 0, which stands for none");
	check_new(key, block, version);
	ledger[entries_n] = (struct entry){ .key = key,
					    .version = version,
					    .first = sealed[0],
					    .tag = tag,
					    .block = block,
					    .next = *head,
					    .next_version = *versions };
	*head = *versions = entries_n++;
}

static bool all_zero(const uint64_t *words)
{
	for (int i = 0; i < SIM_BLOCK_WORDS; i++)
		if (words[i])
			return false;
	return true;
}

/* Whether somebody has sealed it; *stream_p opens it. */
static bool find(const uint64_t *sealed, uint32_t block, uint64_t *stream_p)
{
	struct sim_tag tag;

	for (uint32_t i = heads[sealed[0] % HEADS]; i; i = ledger[i].next) {
		if (ledger[i].first != sealed[0] || ledger[i].block != block)
			continue;
		*stream_p = sim_ledger_stream(ledger[i].key, block, ledger[i].version);
		tag = sim_ledger_tag(*stream_p, sealed);
		if (sim_ledger_same(&tag, &ledger[i].tag))
			return true;
	}
	return false;
}

bool sim_ledger_open(const void *page, uint32_t block, void *plain)
{
	const uint64_t *sealed = page;
	uint64_t *to = plain, stream;

	if (!find(sealed, block, &stream)) {
		memset(plain, 0, SIM_BLOCK);
		return all_zero(sealed);
	}
	for (uint32_t i = 0; i < SIM_BLOCK_WORDS; i++)
		to[i] = sealed[i] ^ sim_ledger_mix(stream + i);
	return true;
}

bool sim_ledger_read(const void *page, uint32_t block, size_t at, uint64_t *word_p)
{
	const uint64_t *sealed = page;
	uint64_t stream;

	*word_p = 0;
	if (!find(sealed, block, &stream))
		return all_zero(sealed);
	*word_p = sealed[at / 8] ^ sim_ledger_mix(stream + at / 8);
	return true;
}

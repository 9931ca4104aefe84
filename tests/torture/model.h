/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What memory must hold: the oracle of the campaign's program.
 *
 * An object is checked at MARKS words of each chunk.  A mark is stored to by one thread, its
 * owner, with a number that names the word and counts the stores (a round), so that an older
 * content, another chunk's, and zeros are told apart.  Any thread may check any mark: what it
 * reads must be of a round between the one that was complete before the load and the one that had
 * begun after it.
 *
 * A touch that ends as SIGBUS is judged by what the plan of this run allows (struct rules)
 * and by what the program knows of the chunk: one that nobody has stored to, or that is pinned, is
 * never lost.  A chunk that is lost stays so until it is discarded.
 *
 * Threads: any, but for what the comments leave to an owner.
 */
#ifndef SODA_TORTURE_MODEL_H
#define SODA_TORTURE_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MARKS = 16, BLOCK = 8 /* neighbouring chunks have one owner */ };

/* What may go wrong in this run. */
struct rules {
	bool lose;    /* the server may come back without anonymous data */
	bool error;   /* what cannot be had in time is an error, and may be had later */
	bool full;    /* the server may have no room */
	bool changed; /* the read-only file may become another one */
	bool fills;   /* soda run: what follows a store may count as stored to, too (fill.c) */
	bool store;   /* a read-only file's chunk that one program cannot have another may bring */
};

enum kind { ANONYMOUS, READ_ONLY, WRITABLE };

struct mark {
	_Atomic uint32_t begun, done; /* rounds; by the owner, begun before the store */
	_Atomic uint32_t zero_at;     /* the round that reads as zeros; by the owner, era odd */
};

struct chunk {
	_Atomic uint32_t era;	 /* odd: its owner discards it at this moment */
	_Atomic uint32_t lost;	 /* judged as lost, and not discarded since */
	_Atomic uint32_t pinned; /* a pin has succeeded and was not undone */
	_Atomic uint32_t
		told; /* a sync has said that data of the object are lost; no store since */
	_Atomic uint64_t stores; /* begun */
	_Atomic uint64_t zeroed; /* `stores` when it became zeros */
	_Atomic uint64_t synced; /* `stores` that a sync has acknowledged */
	struct mark marks[MARKS];
};

/* Of a WRITABLE file, for each mark: which rounds its file may hold. Outlives the program. */
struct promise {
	_Atomic uint32_t least, most;
};

struct object {
	uint64_t id;
	enum kind kind;
	uint64_t *words;
	size_t chunks;
	struct chunk *table;
	struct promise *promises; /* WRITABLE only */
};

struct model {
	struct rules rules;
	size_t chunk_bytes;
	unsigned threads;
	bool shared; /* every thread owns marks of every chunk; none is discarded */
	_Atomic uint64_t losses, errors, refusals;
};

extern struct model model;

/* Ends the process with 99 after "WHAT: ..." on standard error. */
_Noreturn void wrong(const char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The handler of SIGBUS, once. */
void model_begin(void);
/* words: of memory.h, all zeros, or the file's content, which is mix(position, 0). */
struct object *object_new(uint64_t id, enum kind kind, void *words, size_t bytes);
void object_delete(struct object *o);

size_t chunk_words(void);
/* What a mark holds at a round; its place in the object. */
uint64_t word_value(uint64_t id, size_t word, uint32_t round);
size_t mark_word(size_t chunk, size_t mark);
unsigned owner_of(size_t chunk, size_t mark);

/* One load or store; false: it ended as SIGBUS. */
bool load_word(const uint64_t *word, uint64_t *value_p);
bool store_word(uint64_t *word, uint64_t value);

void check_mark(struct object *o, size_t chunk, size_t mark);
void check_chunks(struct object *o, size_t first, size_t n);
/* The owner's. */
void store_mark(struct object *o, size_t chunk, size_t mark);
/* The owner of all of them. They become zeros; not of `shared`, not of files. */
void discard_chunks(struct object *o, size_t first, size_t n);

/* A sync of the range, judged. NULL: all these objects. False: it said that something is lost. */
bool sync_chunks(struct object *o, size_t first, size_t n);
bool sync_objects(struct object *const *objects, size_t n);
/* What another call returned: 0, or what the rules allow. */
bool judge_call(const char *call, int ret);

#endif

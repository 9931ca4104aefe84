/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The object has a chunk for each block of 4 KiB, so that each is detected by itself: all of a
 * chunk is lost with one of its blocks.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "soda.h"
#include "soda/base/tool.h"
#include "soda/bench/seal/seal.h"

static sigjmp_buf before_touch;
static _Atomic uint32_t lines;

static void on_sigbus(int signal)
{
	siglongjmp(before_touch, 1);
}

/* From a signal handler, too. */
static void count_line(int level, const char *message, void *arg)
{
	if (strstr(message, "are not what was sent"))
		atomic_fetch_add(&lines, 1);
}

/* The text of a block: where it is, in which version, and the mark that the parent looks for. */
static void write_block(char *block, uint32_t number, uint32_t version, const char *text)
{
	char head[SODA_SEAL_TEXT + 1];

	snprintf(head, sizeof(head), "block %08x, version %08x", number, version);
	memcpy(block, head, SODA_SEAL_TEXT - 1);
	block[SODA_SEAL_TEXT - 1] = '\n';
	for (size_t at = SODA_SEAL_TEXT; at < SODA_SEAL_BLOCK_BYTES; at += SODA_SEAL_TEXT)
		memcpy(block + at, text, SODA_SEAL_TEXT);
}

static int fill(char *object, uint32_t blocks, uint32_t version, const char *text)
{
	size_t bytes = (size_t)blocks * SODA_SEAL_BLOCK_BYTES;
	int err;

	for (uint32_t i = 0; i < blocks; i++)
		write_block(object + (size_t)i * SODA_SEAL_BLOCK_BYTES, i, version, text);
	err = soda_sync(object, bytes);
	return err ? err : soda_advise(object, bytes, SODA_COLD);
}

/* 1: it can be read, and is right; 0: it can be read; -1: SIGBUS. */
static int touch(const char *block, const char *expected)
{
	if (sigsetjmp(before_touch, 1))
		return -1;
	return memcmp(block, expected, SODA_SEAL_BLOCK_BYTES) == 0;
}

static void touch_all(const char *object, uint32_t blocks, uint32_t spared, uint32_t version,
		      const char *text, struct soda_seal_answer *answer)
{
	static char expected[SODA_SEAL_BLOCK_BYTES];

	for (uint32_t i = 0; i < blocks; i++) {
		int got;

		write_block(expected, i, version, text);
		got = touch(object + (size_t)i * SODA_SEAL_BLOCK_BYTES, expected);
		if (i >= blocks - spared)
			answer->spoilt += got != 1;
		else if (got < 0)
			answer->detected++;
		else
			answer->served++;
	}
	answer->lines = atomic_load(&lines);
}

static void *open_object(uint32_t blocks, struct soda_seal_answer *answer)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct sigaction act = { .sa_handler = on_sigbus, .sa_flags = SA_NODEFER };
	void *object = NULL;

	sigaction(SIGBUS, &act, NULL);
	cfg.log = count_line;
	cfg.chunk_bytes = SODA_SEAL_BLOCK_BYTES;
	cfg.buffer = "4M";
	cfg.prefetch_chunks = SODA_OFF;
	answer->err = soda_init(&cfg);
	if (!answer->err) {
		object = soda_alloc((size_t)blocks * SODA_SEAL_BLOCK_BYTES, 0);
		answer->err = object ? 0 : -errno;
	}
	if (answer->err)
		snprintf(answer->why, sizeof(answer->why), "%.190s", soda_last_error());
	return object;
}

int soda_seal_victim(int argc, char **argv)
{
	int fd = argc == 5 ? atoi(argv[1]) : -1;
	uint32_t blocks = argc == 5 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	uint32_t spared = argc == 5 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	struct soda_seal_answer answer = { 0 };
	uint32_t asked, version = 0;
	char *object;

	if (!blocks || spared > blocks || strlen(argv[4]) != SODA_SEAL_TEXT)
		return SODA_EXIT_USAGE;
	object = open_object(blocks, &answer);
	while (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == (ssize_t)sizeof(answer) &&
	       !answer.err && recv(fd, &asked, sizeof(asked), 0) == (ssize_t)sizeof(asked)) {
		answer = (struct soda_seal_answer){ 0 };
		if (!asked) {
			touch_all(object, blocks, spared, version, argv[4], &answer);
			continue;
		}
		version = asked;
		answer.err = fill(object, blocks, version, argv[4]);
		if (answer.err)
			snprintf(answer.why, sizeof(answer.why), "%.190s", soda_last_error());
	}
	soda_shutdown();
	return answer.err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

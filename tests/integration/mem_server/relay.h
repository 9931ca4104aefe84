/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody between a client and a server, who writes down what both say, and may change a byte of
 * it.  One connection.  Assertions of cmocka, so from a test's own thread.
 */
#ifndef SODA_TESTS_RELAY_H
#define SODA_TESTS_RELAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay {
	char address[80]; /* for the client to connect to */
	uint8_t said[8192], heard[8192];
	size_t said_n, heard_n;
	size_t flip_said, flip_heard; /* which byte is changed; 0: none */
	const char *to;
	int listener;
	pthread_t thread;
};

/* A connection to an address of tcp://127.0.0.1 or shm://@, which gives up after a minute. */
int relay_dial(const char *to);
/* A socket that listens on loopback; its address as tcp://. */
int relay_listen(char address[80]);
/* Begin to relay to a server; `to` stays until the end. */
void relay_begin(struct relay *r, const char *to, size_t flip_said, size_t flip_heard);
/* Once the client's end is closed. */
void relay_end(struct relay *r);
/* Whether either of them has said that. */
bool relay_saw(const struct relay *r, const void *what, size_t bytes);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer made by hand, for what the transports' own functions would never send. */
#ifndef CONFORMANCE_RAW_H
#define CONFORMANCE_RAW_H

#include "conformance.h"

/* A socket, connected; receiving gives up after half a minute. */
int raw_connect(const struct env *e);
/* All of it, or the test fails. */
void raw_send(int fd, const void *bytes, size_t n);
void raw_trickle(int fd, const uint8_t *bytes, size_t n);
void raw_recv(int fd, void *bytes, size_t n);

/* Each encodes one message, or its beginning, and returns how long it is. */
size_t raw_frame(uint8_t *out, unsigned type, uint32_t length);
size_t raw_hello(uint8_t *out, uint32_t magic, uint32_t version, uint32_t kind);
size_t raw_read_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size, uint64_t tag);
size_t raw_write_request(uint8_t *out, uint16_t region, uint64_t page, uint32_t size);

/* A data connection that has said HELLO, and was welcome. */
int raw_data(const struct env *e);
void assert_reply(int fd, unsigned type, unsigned status, uint64_t tag, uint32_t data);
/* The peer closes, whatever it may have said before, and does not keep us waiting. Closes fd. */
void assert_closed(int fd);
/* A good client's link works. */
void assert_works(struct link *l);

#endif

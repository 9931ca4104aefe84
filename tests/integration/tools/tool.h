/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of the program `soda` share: its last run, and what it must have said. Behind
 * <cmocka.h>. */
#ifndef SODA_TEST_TOOL_H
#define SODA_TEST_TOOL_H

#include <jansson.h>
#include <stdint.h>

#include "lib/proc.h"

#define SODA "tools/soda/soda"

/* The last run; what follows is about it, and fails the running test. */
extern struct program run;

/* It has ended with this status and a message that has this in it, and printed nothing. */
void refused(int status, const char *message);
/* It has ended well and printed JSON; a new reference. */
json_t *answer(void);

/* The member is a whole number, which is not negative. */
uint64_t count(const json_t *in, const char *key);
/* The member is a number with a fraction, and more than 0. */
void positive(const json_t *in, const char *key);

/* setup and teardown of a group: tmp, a folder, which is empty again at the end. */
extern char tmp[];
int make_tmp(void **state);
int remove_tmp(void **state);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that takes of the room for static thread-local data that the C library keeps. */
char *filler_data(void);

static __thread char data[FILLER_BYTES] __attribute__((tls_model("initial-exec")));

char *filler_data(void)
{
	return data;
}

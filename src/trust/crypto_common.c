/* SPDX-License-Identifier: BSD-3-Clause */
/* What needs no libcrypto: HKDF over HMAC, comparison, randomness. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trust/crypto.h"

int soda_hkdf(const uint8_t key[SODA_KEY_BYTES], const void *salt, size_t salt_bytes,
	      const void *info, size_t info_bytes, uint8_t out[SODA_KEY_BYTES])
{
	static const uint8_t zeros[SODA_KEY_BYTES];
	uint8_t pseudo[SODA_KEY_BYTES], text[SODA_HKDF_INFO_MAX + 1];
	int r;

	assert(info_bytes <= SODA_HKDF_INFO_MAX);
	r = soda_hmac(salt_bytes ? salt : zeros, salt_bytes ? salt_bytes : sizeof(zeros), key,
		      SODA_KEY_BYTES, pseudo);
	memcpy(text, info, info_bytes);
	text[info_bytes] = 1; /* the first block of HKDF-Expand, which is one hash long */
	if (!r)
		r = soda_hmac(pseudo, sizeof(pseudo), text, info_bytes + 1, out);
	soda_wipe(pseudo, sizeof(pseudo));
	return r;
}

bool soda_mac_equal(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	volatile uint8_t differ = 0;

	for (size_t i = 0; i < bytes; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

int soda_random(void *out, size_t bytes)
{
	uint8_t *at = out;

	while (bytes) {
		ssize_t n = getrandom(at, bytes, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

void soda_wipe(void *memory, size_t bytes)
{
	explicit_bzero(memory, bytes);
}

/* The whole pages in which bytes lie. */
static void *pages_of(const void *memory, size_t *bytes)
{
	uintptr_t from = (uintptr_t)memory & ~(uintptr_t)4095;
	uintptr_t end = ((uintptr_t)memory + *bytes + 4095) & ~(uintptr_t)4095;

	*bytes = end - from;
	return (void *)from;
}

void soda_secret_lock(void *memory, size_t bytes)
{
	void *pages = pages_of(memory, &bytes);

	/* the kernel's own: that of `soda run` is for fabric memory */
	syscall(SYS_mlock2, pages, bytes, MLOCK_ONFAULT);
}

void soda_secret_hide(void *memory, size_t bytes)
{
	void *pages = pages_of(memory, &bytes);

	madvise(pages, bytes, MADV_DONTDUMP);
	soda_secret_lock(pages, bytes);
}

void *soda_secret_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP);
	madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

void *soda_secret_new(size_t bytes)
{
	void *p = soda_secret_map(bytes);

	if (p)
		soda_secret_lock(p, bytes);
	return p;
}

void soda_secret_free(void *memory, size_t bytes)
{
	if (!memory)
		return;
	soda_wipe(memory, bytes);
	munmap(memory, bytes);
}

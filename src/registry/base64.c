/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry/etcd.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *soda_base64_encode(const void *data, size_t bytes)
{
	const uint8_t *from = data;
	char *text = malloc((bytes + 2) / 3 * 4 + 1), *to = text;

	if (!text)
		return NULL;
	for (size_t i = 0; i < bytes; i += 3) {
		size_t left = bytes - i;
		uint32_t three = (uint32_t)from[i] << 16;

		three |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
		three |= left > 2 ? from[i + 2] : 0;
		*to++ = digits[three >> 18];
		*to++ = digits[three >> 12 & 63];
		*to++ = left > 1 ? digits[three >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[three & 63] : '=';
	}
	*to = '\0';
	return text;
}

/* Four digits, of which so many are padding. -1: they are none. */
static int32_t value_of(const char *four, int padding)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++) {
		const char *at = i < 4 - padding ? memchr(digits, four[i], 64) : digits;

		if (!at)
			return -1;
		value = value << 6 | (uint32_t)(at - digits);
	}
	return (int32_t)value;
}

char *soda_base64_decode(const char *text, size_t *bytes_p)
{
	size_t n = strlen(text), bytes = 0;
	char *data = n % 4 ? NULL : malloc(n / 4 * 3 + 1);

	for (size_t i = 0; data && i < n; i += 4) {
		int padding = 0;
		int32_t value;

		if (i + 4 == n && text[n - 1] == '=')
			padding = text[n - 2] == '=' ? 2 : 1;
		value = value_of(text + i, padding);
		if (value < 0) {
			free(data);
			return NULL;
		}
		for (int k = 0; k < 3 - padding; k++)
			data[bytes++] = (char)(value >> (16 - 8 * k));
	}
	if (data) {
		data[bytes] = '\0';
		*bytes_p = bytes;
	}
	return data;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is in a pool's registry, which anybody may have put there.  First byte: 0: the rest is a
 * member's record; 1: base64; others: a registry's name.  What is taken is written and read again:
 * the same.
 */
#include "fuzz/fuzz.h"
#include "registry/etcd.h"
#include "registry/registry.h"

static void try_record(const char *text, size_t bytes)
{
	struct soda_registry_member m, again;
	char *back;

	if (soda_registry_decode(text, bytes, &m))
		return;
	MUST(!strpbrk(m.address, ", \n") && strstr(m.address, "://"));
	back = soda_registry_encode(&m);
	MUST(back && !soda_registry_decode(back, strlen(back), &again));
	MUST(!strcmp(m.address, again.address) && !strcmp(m.domain, again.domain));
	MUST(m.instance == again.instance && m.state == again.state);
	MUST(m.capacity == again.capacity && m.free_bytes == again.free_bytes);
	free(back);
}

static void try_base64(const char *text)
{
	size_t bytes, bytes_again;
	char *data = soda_base64_decode(text, &bytes), *back, *again;

	if (!data)
		return;
	back = soda_base64_encode(data, bytes);
	MUST(back && strlen(back) == strlen(text));
	again = soda_base64_decode(back, &bytes_again);
	MUST(again && bytes == bytes_again && !memcmp(data, again, bytes));
	free(again);
	free(back);
	free(data);
}

static void try_name(const char *text)
{
	struct soda_registry_name name;
	struct soda_why why = { "" };

	if (soda_registry_parse(text, &name, &why)) {
		MUST(*why.text);
		return;
	}
	MUST(name.n >= 1 && name.n <= SODA_REGISTRY_ENDPOINTS && *name.pool);
	for (uint32_t i = 0; i < name.n; i++)
		MUST(!strpbrk(name.endpoint[i], "/@?#, ") && strchr(name.endpoint[i], ':'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text;

	if (bytes < 1)
		return 0;
	text = malloc(bytes);
	MUST(text);
	memcpy(text, data + 1, bytes - 1);
	text[bytes - 1] = '\0';
	if (data[0] == 0)
		try_record(text, bytes - 1);
	else if (data[0] == 1)
		try_base64(text);
	else
		try_name(text);
	free(text);
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/job_key.h"

#include <errno.h>
#include <string.h>

#include "trust/crypto.h"
#include "wire/field.h"

#define LABEL_BYTES 16u
#define KEY "SODA job key"

static const char join_label[LABEL_BYTES] = "SODA job join";
static const char grant_label[LABEL_BYTES] = "SODA job grant";
static const char link_label[LABEL_BYTES] = "SODA job link";

_Static_assert(SODA_MSG_KEY_BYTES == SODA_SIGN_PUBLIC, "the public half");
_Static_assert(SODA_MSG_SIGNATURE_BYTES == SODA_SIGN_BYTES, "of the pair");

int soda_job_pair_make(const char *key, const char *job, struct soda_job_pair *pair)
{
	char info[sizeof(KEY) + SODA_WIRE_MAX_NAME];
	uint8_t root[SODA_KEY_BYTES];
	size_t bytes = strnlen(job, SODA_WIRE_MAX_NAME);
	int ret = soda_hmac((const uint8_t *)KEY, sizeof(KEY), key, strlen(key), root);

	memcpy(info, KEY, sizeof(KEY));
	memcpy(info + sizeof(KEY), job, bytes);
	if (!ret)
		ret = soda_hkdf(root, NULL, 0, info, sizeof(KEY) + bytes, pair->seed);
	soda_wipe(root, sizeof(root));
	return ret ? ret : soda_sign_public(pair->seed, pair->shown);
}

int soda_job_pair_draw(struct soda_job_pair *pair)
{
	int ret = soda_random(pair->seed, sizeof(pair->seed));

	return ret ? ret : soda_sign_public(pair->seed, pair->shown);
}

/* The data that are signed: a hash of the parts, with the label first. */
struct part {
	const void *data;
	size_t bytes;
};

static int hash(const char label[LABEL_BYTES], const struct part *parts, size_t n,
		uint8_t out[SODA_KEY_BYTES])
{
	struct soda_digest *digest;
	int ret = soda_digest_begin(&digest), end;

	if (ret)
		return ret;
	ret = soda_digest_add(digest, label, LABEL_BYTES);
	for (size_t i = 0; i < n && !ret; i++)
		ret = soda_digest_add(digest, parts[i].data, parts[i].bytes);
	end = soda_digest_end(digest, ret ? NULL : out);
	return ret ? ret : end;
}

static int hash_join(const struct soda_wire_msg_challenge *of, const uint8_t *join, size_t bytes,
		     uint8_t out[SODA_KEY_BYTES])
{
	const struct part parts[] = {
		{ of->nonce, sizeof(of->nonce) },
		{ of->router, sizeof(of->router) },
		{ join, SODA_WIRE_MSG_JOIN_PROOF },
		{ join + SODA_WIRE_MSG_JOIN_BYTES, bytes - SODA_WIRE_MSG_JOIN_BYTES },
	};

	return hash(join_label, parts, sizeof(parts) / sizeof(parts[0]), out);
}

static int hash_grant(const uint8_t router[SODA_MSG_KEY_BYTES], const struct soda_job_place *place,
		      uint8_t out[SODA_KEY_BYTES])
{
	uint8_t numbers[20];
	const struct part parts[] = {
		{ router, SODA_MSG_KEY_BYTES },
		{ numbers, sizeof(numbers) },
		{ place->name, strlen(place->name) },
	};

	soda_wire_put_u32(numbers, place->ranks);
	soda_wire_put_u32(numbers + 4, place->agents);
	soda_wire_put_u32(numbers + 8, place->agent);
	soda_wire_put_u64(numbers + 12, place->shape);
	return hash(grant_label, parts, sizeof(parts) / sizeof(parts[0]), out);
}

static int hash_link(const uint8_t nonce[SODA_MSG_NONCE_BYTES], const uint8_t *link,
		     const void *name, size_t bytes, uint8_t out[SODA_KEY_BYTES])
{
	const struct part parts[] = {
		{ nonce, SODA_MSG_NONCE_BYTES },
		{ link, SODA_WIRE_MSG_LINK_PROOF },
		{ name, bytes },
	};

	return hash(link_label, parts, sizeof(parts) / sizeof(parts[0]), out);
}

/* The place that the grant of a whole JOIN is of. -EPROTO. */
static int place_of(const void *join, size_t bytes, char name[SODA_WIRE_MAX_NAME + 1],
		    struct soda_job_place *place_p)
{
	struct soda_wire_msg_place place;
	struct soda_wire_msg_join j;
	int ret = soda_wire_get_msg_join(join, bytes, &j, &place);

	if (ret || j.name_bytes > SODA_WIRE_MAX_NAME)
		return -EPROTO;
	memcpy(name, place.name, j.name_bytes);
	name[j.name_bytes] = 0;
	*place_p = (struct soda_job_place){ .name = name,
					    .ranks = j.ranks,
					    .agents = j.agents,
					    .agent = j.here,
					    .shape = soda_wire_msg_shape(&j, &place) };
	return 0;
}

int soda_job_sign_join(const struct soda_job_pair *pair, const struct soda_wire_msg_challenge *of,
		       uint8_t *join, size_t bytes)
{
	char name[SODA_WIRE_MAX_NAME + 1];
	uint8_t digest[SODA_KEY_BYTES];
	struct soda_job_place place;
	int ret;

	memcpy(join + SODA_WIRE_MSG_JOIN_KEY, pair->shown, sizeof(pair->shown));
	ret = place_of(join, bytes, name, &place);
	if (!ret)
		ret = hash_grant(of->router, &place, digest);
	if (!ret)
		ret = soda_sign(pair->seed, digest, sizeof(digest),
				join + SODA_WIRE_MSG_JOIN_GRANT);
	if (!ret)
		ret = hash_join(of, join, bytes, digest);
	return ret ? ret
		   : soda_sign(pair->seed, digest, sizeof(digest), join + SODA_WIRE_MSG_JOIN_PROOF);
}

int soda_job_check_join(const struct soda_wire_msg_challenge *of, const void *join, size_t bytes)
{
	const uint8_t *at = join, *key = at + SODA_WIRE_MSG_JOIN_KEY;
	char name[SODA_WIRE_MAX_NAME + 1];
	uint8_t digest[SODA_KEY_BYTES];
	struct soda_job_place place;
	int ret = place_of(join, bytes, name, &place);

	if (!ret)
		ret = hash_join(of, at, bytes, digest);
	if (!ret)
		ret = soda_sign_check(key, digest, sizeof(digest), at + SODA_WIRE_MSG_JOIN_PROOF);
	if (!ret)
		ret = hash_grant(of->router, &place, digest);
	return ret ? ret
		   : soda_sign_check(key, digest, sizeof(digest), at + SODA_WIRE_MSG_JOIN_GRANT);
}

int soda_job_sign_link(const struct soda_job_pair *own, const uint8_t nonce[SODA_MSG_NONCE_BYTES],
		       uint8_t link[SODA_WIRE_MSG_LINK_BYTES], const void *name, size_t bytes)
{
	uint8_t digest[SODA_KEY_BYTES];
	int ret;

	memcpy(link + SODA_WIRE_MSG_LINK_ROUTER, own->shown, sizeof(own->shown));
	ret = hash_link(nonce, link, name, bytes, digest);
	return ret ? ret
		   : soda_sign(own->seed, digest, sizeof(digest), link + SODA_WIRE_MSG_LINK_PROOF);
}

int soda_job_check_link(const uint8_t nonce[SODA_MSG_NONCE_BYTES], const void *link, size_t bytes,
			const struct soda_job_place *place)
{
	const uint8_t *at = link, *router = at + SODA_WIRE_MSG_LINK_ROUTER;
	uint8_t digest[SODA_KEY_BYTES];
	int ret = hash_grant(router, place, digest);

	if (!ret)
		ret = soda_sign_check(at + SODA_WIRE_MSG_LINK_KEY, digest, sizeof(digest),
				      at + SODA_WIRE_MSG_LINK_GRANT);
	if (!ret)
		ret = hash_link(nonce, at, at + SODA_WIRE_MSG_LINK_BYTES,
				bytes - SODA_WIRE_MSG_LINK_BYTES, digest);
	return ret ? ret
		   : soda_sign_check(router, digest, sizeof(digest), at + SODA_WIRE_MSG_LINK_PROOF);
}

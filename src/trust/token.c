/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/token.h"

#include <errno.h>
#include <string.h>

#define WRAP "SODA token wrap"
#define SHOW "SODA token show"
#define BIND "SODA token bind"

static int mask(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t key[SODA_KEY_BYTES],
		const void *salt, size_t salt_bytes, const void *info, size_t info_bytes)
{
	uint8_t over[SODA_KEY_BYTES];
	int r = soda_hkdf(key, salt, salt_bytes, info, info_bytes, over);

	for (unsigned i = 0; i < SODA_WIRE_TOKEN_BYTES; i++)
		token[i] ^= over[i];
	soda_wipe(over, sizeof(over));
	return r;
}

int soda_token_wrap(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t client_key[SODA_KEY_BYTES],
		    const uint8_t nonce[SODA_WIRE_TOKEN_NONCE_BYTES])
{
	return mask(token, client_key, nonce, SODA_WIRE_TOKEN_NONCE_BYTES, WRAP, sizeof(WRAP));
}

int soda_token_show(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t connection[SODA_KEY_BYTES])
{
	return mask(token, connection, NULL, 0, SHOW, sizeof(SHOW));
}

int soda_token_bind(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t agent_key[SODA_KEY_BYTES],
		    const char *tenant, uint64_t client_id)
{
	char info[sizeof(BIND) + SODA_WIRE_TENANT_MAX];
	size_t bytes = strnlen(tenant, SODA_WIRE_TENANT_MAX);
	uint8_t id[SODA_WIRE_NUMBER_BYTES];

	soda_wire_put_number(id, client_id);
	memcpy(info, BIND, sizeof(BIND));
	memcpy(info + sizeof(BIND), tenant, bytes);
	return mask(token, agent_key, id, sizeof(id), info, sizeof(BIND) + bytes);
}

static void forget(struct soda_tokens *tokens, unsigned which)
{
	soda_wipe(&tokens->at[which], sizeof(tokens->at[which]));
}

/* Whether the client is to have the newest one, and not another. */
static bool is_fresh(const struct soda_tokens *tokens, uint64_t now_ms)
{
	uint64_t life_ms = tokens->at[0].until_ms - tokens->at[0].made_ms;

	return tokens->at[0].number && !tokens->at[0].shown &&
	       now_ms < tokens->at[0].made_ms + life_ms / 4;
}

int soda_tokens_renew(struct soda_tokens *tokens, uint32_t held, uint64_t now_ms, uint32_t life_ms,
		      uint32_t *number_p, uint32_t *left_ms_p,
		      uint8_t token_p[SODA_WIRE_TOKEN_BYTES])
{
	uint8_t made[SODA_WIRE_TOKEN_BYTES];
	int r = is_fresh(tokens, now_ms) ? 0 : soda_random(made, sizeof(made));

	if (r)
		return r;
	if (tokens->at[1].number != held || !held)
		forget(tokens, 1);
	if (!is_fresh(tokens, now_ms)) {
		if (held && tokens->at[0].number == held)
			tokens->at[1] = tokens->at[0];
		tokens->last += tokens->last == UINT32_MAX ? 2 : 1; /* 0 is none */
		tokens->at[0].number = tokens->last;
		tokens->at[0].shown = false;
		tokens->at[0].made_ms = now_ms;
		tokens->at[0].until_ms = now_ms + life_ms;
		memcpy(tokens->at[0].token, made, sizeof(made));
		soda_wipe(made, sizeof(made));
	}
	*number_p = tokens->at[0].number;
	*left_ms_p = (uint32_t)(tokens->at[0].until_ms - now_ms);
	memcpy(token_p, tokens->at[0].token, SODA_WIRE_TOKEN_BYTES);
	return 0;
}

void soda_tokens_note(struct soda_tokens *tokens, uint32_t held, uint32_t number, uint64_t now_ms,
		      uint32_t left_ms, const uint8_t token[SODA_WIRE_TOKEN_BYTES])
{
	if (tokens->at[0].number != number) {
		tokens->at[1] = tokens->at[0];
		tokens->at[0].number = number;
	}
	if (tokens->at[0].number == held)
		forget(tokens, 1);
	tokens->at[0].made_ms = now_ms;
	tokens->at[0].until_ms = now_ms + left_ms;
	memcpy(tokens->at[0].token, token, SODA_WIRE_TOKEN_BYTES);
}

int soda_tokens_check(struct soda_tokens *tokens, const uint8_t token[SODA_WIRE_TOKEN_BYTES],
		      uint64_t now_ms, const char **sentence_p)
{
	for (unsigned i = 0; i < 2; i++) {
		if (!tokens->at[i].number ||
		    !soda_mac_equal(tokens->at[i].token, token, SODA_WIRE_TOKEN_BYTES))
			continue;
		*sentence_p = "the token for this client id has expired";
		if (now_ms >= tokens->at[i].until_ms)
			return -ESTALE;
		tokens->at[i].shown = true;
		return 0;
	}
	*sentence_p =
		"the token for this client id is wrong: it has been renewed since, is another "
		"tenant's, or nobody's";
	return -ESTALE;
}

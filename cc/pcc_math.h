/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Arithmetic for utility functions of PCC modules: BPF has no signed division, and none of the targets has powers.
 */
#ifndef SKYHOP_PCC_MATH_H
#define SKYHOP_PCC_MATH_H

#include "skyhop_cc.h"

#define PCC_ONE_SHIFT 16
#define PCC_ONE (1ULL << PCC_ONE_SHIFT) /* unit of exponents */
#define PCC_LOG_SHIFT 32
#define PCC_LOG_BITS 30
#define PCC_LN_2 2977044472ULL /* times 2^32 */
#define PCC_EXP_TERMS 13 /* ln(2)^13 / 13! is less than 2^-32 */

static inline u64 pcc_abs(s64 value)
{
	return value < 0 ? 0 - (u64)value : (u64)value;
}

/* Product value * times / by, rounded towards zero; value * times has to fit 64 bits. */
static inline s64 pcc_ratio(s64 value, u64 times, u64 by)
{
	u64 ratio = pcc_abs(value) * times / by;

	return value < 0 ? -(s64)ratio : (s64)ratio;
}

static inline s64 pcc_bounded(s64 value, s64 most)
{
	return value > most ? most : value < -most ? -most : value;
}

/* Logarithm to base 2, rounded down. */
static inline u32 pcc_floor_log2(u64 value)
{
	u32 log = 0;

	/* No branches, here and below: the verifier would follow every combination of them. */
	for (u32 width = 32; width; width /= 2) {
		u32 by = width * (value >> width != 0);

		value >>= by;
		log += by;
	}
	return log;
}

/* Logarithm to base 2 of a value of at least 1, in units of 2^-32: bit by bit, by squaring the rest. */
static inline u64 pcc_log2(u64 value)
{
	u32 whole = pcc_floor_log2(value);
	u64 rest = value << (63 - whole) >> 32; /* fixed point: 1 is 2^31 */
	u64 log = (u64)whole << PCC_LOG_SHIFT;

	for (u32 bit = 1; bit <= PCC_LOG_BITS; bit++) {
		u64 is_set;

		rest = rest * rest >> 31;
		is_set = rest >> 32;
		rest >>= is_set;
		log += is_set << (PCC_LOG_SHIFT - bit);
	}
	return log;
}

/* 2 to the power of `log`, which is at most 62 in units of 2^-32: by the series of e^x for the fractional part. */
static inline u64 pcc_exp2(u64 log)
{
	u64 x = (log & ((1ULL << PCC_LOG_SHIFT) - 1)) * (PCC_LN_2 >> 1) >> 31;
	u32 whole = (u32)(log >> PCC_LOG_SHIFT) & 63;
	u64 term = 1ULL << 32, sum = 1ULL << 32;

	for (u32 k = 1; k <= PCC_EXP_TERMS; k++) {
		term = (term * x >> 32) / k;
		sum += term;
	}
	return whole < 32 ? sum >> (32 - whole) : sum << min_u32(whole - 32, 30);
}

/* `value`, in parts of `unit`, to the power of `exponent` (in units of 1 / PCC_ONE, up to 1), in the same parts of
 * `unit`. */
static inline u64 pcc_power(u64 value, u64 exponent, u64 unit)
{
	u64 log;

	if (!value)
		return 0;
	log = pcc_log2(value) * exponent + pcc_log2(unit) * (PCC_ONE - exponent);
	return pcc_exp2(log >> PCC_ONE_SHIFT);
}

#endif

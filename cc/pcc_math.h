/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Arithmetic of utilities for the modules that compare them: the kernel's verifier has no division of signed numbers,
 * and nothing has powers.
 */
#ifndef SKYHOP_PCC_MATH_H
#define SKYHOP_PCC_MATH_H

#include "skyhop_cc.h"

#define PCC_ONE_SHIFT 16
#define PCC_ONE (1ULL << PCC_ONE_SHIFT) /* of exponents */
#define PCC_LOG_SHIFT 32
#define PCC_LOG_BITS 30
#define PCC_LN_2 2977044472ULL /* times 2^32 */
#define PCC_EXP_TERMS 13 /* ln(2)^13 / 13! is less than 2^-32 */

static inline u64 pcc_abs(s64 value)
{
	return value < 0 ? 0 - (u64)value : (u64)value;
}

/* value * times / by, towards zero; the product has to fit. */
static inline s64 pcc_ratio(s64 value, u64 times, u64 by)
{
	u64 ratio = pcc_abs(value) * times / by;

	return value < 0 ? -(s64)ratio : (s64)ratio;
}

static inline s64 pcc_bounded(s64 value, s64 most)
{
	return value > most ? most : value < -most ? -most : value;
}

/* How many bits a number has beyond its first. */
static inline u32 pcc_floor_log2(u64 value)
{
	u32 log = 0;

	/* Without branches, here and below: the verifier would follow every combination of them. */
	for (u32 width = 32; width; width /= 2) {
		u32 by = width * (value >> width != 0);

		value >>= by;
		log += by;
	}
	return log;
}

/* The logarithm to base 2 of at least 1, in 2^-32: bit by bit, each by squaring what is left. */
static inline u64 pcc_log2(u64 value)
{
	u32 whole = pcc_floor_log2(value);
	u64 rest = value << (63 - whole) >> 32; /* 1 is 2^31 */
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

/* 2 to the power of at most 62, which is in 2^-32: by the series of e^x for what is behind the point. */
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

/* `value`, so many of a unit, to the power of `exponent` (of PCC_ONE, up to 1), in the same parts of the unit. */
static inline u64 pcc_power(u64 value, u64 exponent, u64 unit)
{
	u64 log;

	if (!value)
		return 0;
	log = pcc_log2(value) * exponent + pcc_log2(unit) * (PCC_ONE - exponent);
	return pcc_exp2(log >> PCC_ONE_SHIFT);
}

#endif

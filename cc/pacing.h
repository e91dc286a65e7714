/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Pacing rates, and the bursts sent at them. A bandwidth is in packets per microsecond times PACING_BW_ONE, a gain
 * is a multiple of 1 / PACING_GAIN_ONE.
 */
#ifndef SKYHOP_PACING_H
#define SKYHOP_PACING_H

#include "skyhop_cc.h"

#define PACING_BW_SHIFT 24
#define PACING_BW_ONE (1ULL << PACING_BW_SHIFT)
#define PACING_GAIN_SHIFT 8
#define PACING_GAIN_ONE (1 << PACING_GAIN_SHIFT)
#define PACING_GSO_BYTES 65536
#define PACING_MAX_BURST_BYTES (PACING_GSO_BYTES - 1 - 320) /* without the headers of a GSO packet */
#define PACING_MAX_BURST_SEGMENTS 127

/* Rate of `bw` times `gain` less `margin_percent`, in bytes per second. */
static inline u64 pacing_bytes_per_sec(struct sock *sk, u64 bw, u32 gain, u64 margin_percent)
{
	u64 scaled = bw * tcp_sk(sk)->mss_cache * gain >> PACING_GAIN_SHIFT;

	return scaled * (USEC_PER_SEC / 100 * (100 - margin_percent)) >> PACING_BW_SHIFT;
}

/* Set the pacing rate, in bytes per second, within the limit of the application (SO_MAX_PACING_RATE). */
static inline void pacing_set_rate(struct sock *sk, u64 rate)
{
	sk->sk_pacing_rate = min_u64(rate, sk->sk_max_pacing_rate);
}

/* Called in init: request that TCP paces this connection, unless the qdisc does. */
static inline void pacing_request(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* Burst size at the current rate, in segments, `least` or more. */
static inline u32 pacing_burst_segments(struct sock *sk, u32 least)
{
	u64 bytes = min_u64(sk->sk_pacing_rate >> (sk->sk_pacing_shift & 31), PACING_MAX_BURST_BYTES);
	u32 segments = (u32)(bytes / max_u32(tcp_sk(sk)->mss_cache, 1));

	return min_u32(max_u32(segments, least), PACING_MAX_BURST_SEGMENTS);
}

/* Duration of four largest bursts at the current rate, 1 ms at most: an ACK may be that late. */
static inline u32 pacing_four_bursts_us(struct sock *sk)
{
	u64 rate = sk->sk_pacing_rate;

	return rate ? (u32)min_u64(USEC_PER_MSEC, 4ULL * PACING_GSO_BYTES * USEC_PER_SEC / rate) : 0;
}

#endif

/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * BBR version 2 with the behaviour and constants of Linux's patch (v2alpha). It differs from version 3 as follows:
 * STARTUP is faster, PROBE_DOWN slower; the pipe counts as full when the windowed maximum, not the sample, stops
 * growing; a probe without loss ends when the queue has built up (1.25 BDPs, after a min_rtt); a loss that a tail
 * loss probe repaired does not count. Its ECN was off unless a module parameter turned it on, and is left out.
 *
 * A stock kernel does not report some of the per-packet state that BBR needs: see flight.h and bbr23_core.h.
 */
#include "bbr23_core.h"

#define BBR2_PARAMS(P) BBR23_PARAMS(P, 739, 739, 192, 512, 8, 0)
SKYHOP_PARAMS(BBR2_PARAMS);

struct bbr2 {
	struct bbr23 bbr;
	struct flight flight;
};
SKYHOP_STATE(struct bbr2);

SKYHOP_HOOK(void, bbr2_init, struct sock *sk)
{
	struct bbr2 *bbr2 = skyhop_state_create(sk);

	if (bbr2)
		bbr23_start(sk, &bbr2->bbr, &bbr2->flight, &BBR23_CONFIG, true);
}

SKYHOP_HOOK(void, bbr2_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (bbr2)
		bbr23_on_ack(sk, &bbr2->bbr, &bbr2->flight, rs);
}

SKYHOP_HOOK(void, bbr2_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	if (bbr2)
		bbr23_on_event(sk, &bbr2->bbr, event);
}

SKYHOP_HOOK(void, bbr2_set_state, struct sock *sk, u8 new_state)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	if (bbr2)
		bbr23_on_state(sk, &bbr2->bbr, &bbr2->flight, new_state);
}

SKYHOP_HOOK(u32, bbr2_ssthresh, struct sock *sk)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	return bbr2 ? bbr23_on_recovery(sk, &bbr2->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, bbr2_undo_cwnd, struct sock *sk)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	return bbr2 ? bbr23_on_undo(&bbr2->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, bbr2_min_tso_segs, struct sock *sk)
{
	struct bbr2 *bbr2 = skyhop_state(sk);

	return bbr2 ? bbr23_least_burst(sk, &bbr2->bbr) : 2;
}

SKYHOP_HOOK(u32, bbr2_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR23_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(bbr2, "BBR version 2: bounds in-flight data by loss; probes until a queue builds",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(bbr2_init),
	      .ssthresh = SKYHOP_FN(bbr2_ssthresh),
	      .cong_control = SKYHOP_FN(bbr2_cong_control),
	      .set_state = SKYHOP_FN(bbr2_set_state),
	      .cwnd_event = SKYHOP_FN(bbr2_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(bbr2_undo_cwnd),
	      .min_tso_segs = SKYHOP_FN(bbr2_min_tso_segs),
	      .sndbuf_expand = SKYHOP_FN(bbr2_sndbuf_expand));

/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Module that reports what it sees, for the tests of its host. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

/* Returns the announced time; 0: none. */
SKYHOP_HOOK(u32, probe_ssthresh, struct sock *sk)
{
	struct skyhop_handover handover;

	return skyhop_handover(sk, &handover) ? (u32)handover.at_ns : 0;
}

SKYHOP_HOOK(u32, probe_undo_cwnd, struct sock *sk)
{
	return skyhop_jiffies(sk);
}

SKYHOP_HOOK(u32, probe_min_tso_segs, struct sock *sk)
{
	return skyhop_random(sk, 7);
}

/* Returns the bit fields: the state, and in bit 8 whether the window was fully used. */
SKYHOP_HOOK(u32, probe_sndbuf_expand, struct sock *sk)
{
	return tcp_ca_state(sk) | (u32)skyhop_bits(tcp_sk(sk), is_cwnd_limited) << 8;
}

/* Reports as many phases as packets were acknowledged. */
SKYHOP_HOOK(void, probe_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	for (u32 phase = 0; phase < acked; phase++)
		skyhop_tell(sk, phase % 3, ack, ack + phase);
}

SKYHOP_MODULE(probe, "what a module sees",
	      .ssthresh = SKYHOP_FN(probe_ssthresh),
	      .cong_avoid = SKYHOP_FN(probe_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(probe_undo_cwnd),
	      .min_tso_segs = SKYHOP_FN(probe_min_tso_segs),
	      .sndbuf_expand = SKYHOP_FN(probe_sndbuf_expand));

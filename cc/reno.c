/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* NewReno's window (RFC 5681): slow start, then one packet per round trip, half after a loss. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

/* Half the window (RFC 5681 3.1, equation 4) */
SKYHOP_HOOK(u32, reno_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

/* Growth in slow start and congestion avoidance (RFC 5681 3.1, equations 2 and 3) */
SKYHOP_HOOK(void, reno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

/* Undo of a spurious reduction (RFC 4015 3.2) */
SKYHOP_HOOK(u32, reno_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(reno, "NewReno (RFC 5681)",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .ssthresh = SKYHOP_FN(reno_ssthresh),
	      .cong_avoid = SKYHOP_FN(reno_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(reno_undo_cwnd));

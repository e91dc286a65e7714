/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Reno that requires ECN. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

SKYHOP_HOOK(u32, marks_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SKYHOP_HOOK(void, marks_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SKYHOP_HOOK(u32, marks_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(marks, "Reno with ECN",
	      .flags = TCP_CONG_NEEDS_ECN,
	      .ssthresh = SKYHOP_FN(marks_ssthresh),
	      .cong_avoid = SKYHOP_FN(marks_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(marks_undo_cwnd));

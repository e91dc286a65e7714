/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Reno that has to have ECN. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

SKYHOP_MODULE(marks, "Reno with ECN",
	      .flags = TCP_CONG_NEEDS_ECN,
	      .ssthresh = SKYHOP_FN(tcp_reno_ssthresh),
	      .cong_avoid = SKYHOP_FN(tcp_reno_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(tcp_reno_undo_cwnd));

//! TCP settings of a flow's two hosts and their sockets.

use skyhop_model::{BufferKeys, BufferSizes, KeepAlive, Profile, layered};
use skyhop_units::{Bytes, Duration};

/// Smallest size of a buffer: room for a few segments (Linux: SOCK_MIN_RCVBUF, and the first value of
/// tcp_rmem and tcp_wmem).
const LEAST_BUFFER: Bytes = Bytes::new(4096);
/// Unit of keep-alive times in Linux, and therefore their smallest value.
const SECOND: Duration = Duration::from_secs(1);
/// Values that CONFIG_HZ may have.
const TICKS: [u32; 4] = [100, 250, 300, 1000];
const MOST_INITIAL_CWND: u32 = 10_000;

layered! {
    /// TCP settings of both ends: `[tcp]`, or `tcp = { … }` of a flow.
    TcpKeys => #[derive(Copy, Eq, serde::Deserialize)] #[serde(deny_unknown_fields)] TcpOptions {
        /// Linux version whose TCP the hosts run, from `skyhop list profiles`.
        profile: Profile = Profile::default(),
        /// Timer ticks of the kernel per second (CONFIG_HZ): 100, 250, 300 or 1000.
        hz: u32 = 1000,
        /// Whether retransmission timers have the coarse granularity of the kernel's timer wheel, which
        /// delays them by up to an eighth; if false they fire exactly.
        timer_wheel: bool = true,
        /// Initial congestion window in segments, 1 to 10000 (`ip route … initcwnd`).
        initial_cwnd: u32 = 10,
        /// Receive buffer (sysctl tcp_rmem), as { initial = …, max = … }: memory as Linux counts it, at least
        /// 4096 B.
        rmem: BufferSizes [BufferKeys] = BufferSizes::rmem(profile),
        /// Send buffer (sysctl tcp_wmem), as { initial = …, max = … }: memory as Linux counts it, at least
        /// 4096 B.
        wmem: BufferSizes [BufferKeys] = BufferSizes::WMEM,
        /// Whether segments carry timestamps (RFC 7323; sysctl tcp_timestamps); without them a segment has
        /// room for 12 more bytes of payload.
        timestamps: bool = true,
        /// Whether receivers report out-of-order data by selective acknowledgements (RFC 2018; sysctl
        /// tcp_sack).
        sack: bool = true,
        /// Whether the flow negotiates ECN, so that queues may mark rather than drop its packets (RFC 3168;
        /// sysctl tcp_ecn = 1).
        ecn: bool = false,
        /// Whether short segments are sent at once (TCP_NODELAY) instead of being delayed by Nagle's
        /// algorithm. Default: false; true for web pages.
        nodelay: bool = false,
        /// Whether short segments wait for more data as long as possible (TCP_CORK).
        cork: bool = false,
        /// Keep-alive probes of an idle connection (SO_KEEPALIVE), as { time = "7200 s", interval = "75 s",
        /// probes = 9 }; times at least 1 s. Default: none.
        #[serde(skip_serializing_if = "Option::is_none")]
        keepalive: Option<KeepAlive> = None,
        /// Receive buffer of fixed size (SO_RCVBUF) in place of `rmem`, at least 4096 B. Default: not
        /// set, so that `rmem` applies.
        #[serde(skip_serializing_if = "Option::is_none")]
        receive_buffer: Option<Bytes> = None,
    }
}

impl TcpOptions {
    /// Check the settings. The error is the invalid key and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !TICKS.contains(&self.hz) {
            let what = format!("is {}; expected 100, 250, 300 or 1000", self.hz);
            return Err(("hz", what));
        }
        if !(1..=MOST_INITIAL_CWND).contains(&self.initial_cwnd) {
            let what = format!("is {}; expected 1 to {MOST_INITIAL_CWND}", self.initial_cwnd);
            return Err(("initial_cwnd", what));
        }
        check_buffer(self.rmem, ["rmem.initial", "rmem.max"])?;
        check_buffer(self.wmem, ["wmem.initial", "wmem.max"])?;
        if self.receive_buffer.is_some_and(|buffer| buffer < LEAST_BUFFER) {
            return Err(("receive_buffer", format!("must be at least {LEAST_BUFFER}")));
        }
        match self.keepalive {
            Some(keepalive) if keepalive.probes == 0 => {
                Err(("keepalive.probes", "must be at least 1".to_owned()))
            }
            Some(keepalive) if keepalive.time < SECOND || keepalive.interval < SECOND => {
                let key =
                    if keepalive.time < SECOND { "keepalive.time" } else { "keepalive.interval" };
                Err((key, "must be at least 1 s".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

fn check_buffer(
    BufferSizes { initial, max }: BufferSizes,
    [of_initial, of_max]: [&'static str; 2],
) -> Result<(), (&'static str, String)> {
    if initial < LEAST_BUFFER {
        return Err((of_initial, format!("is {initial}; expected at least {LEAST_BUFFER}")));
    }
    if max < initial {
        return Err((of_max, format!("is {max}, but the buffer has {initial} at first")));
    }
    Ok(())
}

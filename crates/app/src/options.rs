//! What the TCP of a flow's two hosts, and its sockets there, are set to.

use skyhop_model::{BufferKeys, BufferSizes, KeepAlive, Profile, layered};
use skyhop_units::{Bytes, Duration};

/// A buffer has room for a few segments (Linux: SOCK_MIN_RCVBUF, and the first number of tcp_rmem and tcp_wmem).
const LEAST_BUFFER: Bytes = Bytes::new(4096);
/// What Linux counts keep-alive times in.
const SECOND: Duration = Duration::from_secs(1);
/// CONFIG_HZ may be one of these.
const TICKS: [u32; 4] = [100, 250, 300, 1000];
const MOST_INITIAL_CWND: u32 = 10_000;

layered! {
    /// `[tcp]`, and `tcp = { … }` of a flow: what both ends are set to.
    TcpKeys => #[derive(Copy, Eq, serde::Deserialize)] #[serde(deny_unknown_fields)] TcpOptions {
        /// Which Linux the hosts run: rules in which they differ.
        profile: Profile = Profile::default(),
        /// The kernel's ticks per second (CONFIG_HZ): 100, 250, 300 or 1000.
        hz: u32 = 1000,
        /// Whether retransmission timers are as late as the kernel's timer wheel has them.
        timer_wheel: bool = true,
        /// The initial window in segments (`ip route … initcwnd`).
        initial_cwnd: u32 = 10,
        /// The receive buffer (sysctl tcp_rmem).
        rmem: BufferSizes [BufferKeys] = BufferSizes::rmem(profile),
        /// The send buffer (sysctl tcp_wmem).
        wmem: BufferSizes [BufferKeys] = BufferSizes::WMEM,
        /// Whether segments carry timestamps (sysctl tcp_timestamps).
        timestamps: bool = true,
        /// Whether what came out of order is reported (sysctl tcp_sack).
        sack: bool = true,
        /// Whether congestion may be told by marks (RFC 3168).
        ecn: bool = false,
        /// Whether short segments leave at once (TCP_NODELAY), rather than one per round trip.
        nodelay: bool = false,
        /// Whether short segments wait for more as long as they may (TCP_CORK).
        cork: bool = false,
        /// Probes of an idle connection (SO_KEEPALIVE); none where not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        keepalive: Option<KeepAlive> = None,
        /// In place of `rmem`: a receive buffer of one size (SO_RCVBUF).
        #[serde(skip_serializing_if = "Option::is_none")]
        receive_buffer: Option<Bytes> = None,
    }
}

impl TcpOptions {
    /// What cannot be: the key and why.
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

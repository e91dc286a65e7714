//! Socket options of a TCP flow.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use skyhop_app::{AppKind as _, Side, TcpOptions};
use skyhop_host::error::{Context, HostError};
use skyhop_host::socket::{self, set_int};
use skyhop_model::KeepAlive;
use skyhop_units::{Bytes, Duration};

use super::TcpPlan;

/// SO_RCVLOWAT of receivers whose applications do not measure arrival times: a wake-up per packet costs a quarter of
/// the throughput of two cores. The value is limited to an eighth of the initial buffer, so that the kernel enlarges
/// the buffer as if data were read on arrival.
const WAKE_AT: Bytes = Bytes::new(64 * 1024);
/// Kernel limits of keep-alive (net/tcp.h): `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL` here, `MAX_TCP_KEEPCNT` below.
const MOST_KEEPALIVE: Duration = Duration::from_secs(32_767);
const MOST_PROBES: u32 = 127;
/// Largest receive buffer: the kernel doubles the requested size, in an int.
const MOST_RECEIVE_BUFFER: Bytes = Bytes::new(i32::MAX as u64 / 2);

/// Check the options against the kernel's limits; the error is the key below `tcp` and the reason.
pub(crate) fn check(options: &TcpOptions) -> Result<(), (&'static str, String)> {
    let most = MOST_RECEIVE_BUFFER;
    if let Some(asked) = options.receive_buffer.filter(|asked| *asked > most) {
        return Err(("receive_buffer", format!("it is {asked}; Linux takes at most {most}")));
    }
    let Some(KeepAlive { time, interval, probes }) = options.keepalive else { return Ok(()) };
    for (key, asked) in [("keepalive.time", time), ("keepalive.interval", interval)] {
        if asked > MOST_KEEPALIVE {
            return Err((key, format!("it is {asked}; Linux takes at most {MOST_KEEPALIVE}")));
        }
    }
    if !(1..=MOST_PROBES).contains(&probes) {
        let what = format!("it is {probes}; Linux takes 1 to {MOST_PROBES}");
        return Err(("keepalive.probes", what));
    }
    Ok(())
}

/// Open a socket for `side` in the calling thread's network namespace and set its options, before it listens or
/// connects. Accepted connections inherit the options of the listening socket.
pub(super) fn open(plan: &TcpPlan, side: Side) -> Result<OwnedFd, HostError> {
    let socket = socket::open()?;
    // The other end sends little data. It does not use the flow's congestion control, which would
    // report phases for that end too.
    if side == plan.app.sends() {
        socket::set_congestion_control(&socket, &plan.kernel_cc)?;
    }
    socket::set_dscp(&socket, plan.dscp)?;
    reset_when_closed(&socket).context("cannot set up a flow's connection")?;
    set(&socket, &plan.options).context("cannot set a flow's socket options")?;
    if let Some(bytes) = plan.options.receive_buffer {
        limit_receive_buffer(&socket, bytes)?;
    }
    Ok(socket)
}

/// Make close send a reset: SO_LINGER with a timeout of zero (socket(7)). Otherwise the kernel would retransmit the
/// undelivered data of a killed engine for minutes, and keep the namespace and the congestion control alive for it.
fn reset_when_closed(socket: &OwnedFd) -> Result<(), Errno> {
    setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })
}

fn set(socket: &OwnedFd, options: &TcpOptions) -> Result<(), Errno> {
    let set_tcp = |option, value| set_int(socket, libc::IPPROTO_TCP, option, value);
    set_tcp(libc::TCP_NODELAY, options.nodelay.into())?;
    set_tcp(libc::TCP_CORK, options.cork.into())?;
    if let Some(KeepAlive { time, interval, probes }) = options.keepalive {
        set_tcp(libc::TCP_KEEPIDLE, whole_seconds(time))?;
        set_tcp(libc::TCP_KEEPINTVL, whole_seconds(interval))?;
        set_tcp(libc::TCP_KEEPCNT, probes as libc::c_int)?;
        set_int(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    }
    Ok(())
}

/// Duration in whole seconds, rounded up, at least one: the kernel's resolution of keep-alive.
fn whole_seconds(time: Duration) -> libc::c_int {
    time.as_nanos().div_ceil(1_000_000_000).max(1) as libc::c_int
}

/// Limit the receive buffer; must be called before the handshake, which negotiates the window scale.
fn limit_receive_buffer(socket: &OwnedFd, bytes: Bytes) -> Result<(), HostError> {
    let asked = bytes.as_u64() as usize;
    // SO_RCVBUFFORCE needs CAP_NET_ADMIN; the kernel limits SO_RCVBUF to net.core.rmem_max.
    setsockopt(socket, sockopt::RcvBufForce, &asked)
        .or_else(|_| setsockopt(socket, sockopt::RcvBuf, &asked))
        .context("cannot size a flow's receive buffer")?;
    // The kernel reports twice the requested size; half of that is for its own overhead.
    let got =
        getsockopt(socket, sockopt::RcvBuf).context("cannot read a flow's receive buffer")? / 2;
    if got >= asked {
        return Ok(());
    }
    let most = Bytes::new(got as u64);
    Err(HostError::Unsupported(format!(
        "tcp.receive_buffer is {bytes}, but this system allows {most}; set a smaller one, have \
         net.core.rmem_max raised, or run as root"
    )))
}

/// Set SO_RCVLOWAT at the side that receives most data, unless its application measures arrival
/// times or limits its read rate.
pub(super) fn batch_reads(plan: &TcpPlan, side: Side, socket: &OwnedFd) -> Result<(), HostError> {
    let is_timed = plan.app.table().is_some();
    let is_slow = plan.app.read_rate().is_some() || plan.options.receive_buffer.is_some();
    if is_timed || is_slow || side == plan.app.sends() {
        return Ok(());
    }
    let wake_at = WAKE_AT.as_u64().min(plan.options.rmem.initial.as_u64() / 8) as libc::c_int;
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, wake_at).context("cannot set up a flow")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use std::os::fd::{AsFd, AsRawFd};

    use skyhop_app::App;
    use skyhop_model::{Dscp, End};
    use skyhop_units::Instant;

    use super::*;
    use crate::traffic::Addresses;

    fn plan(options: TcpOptions) -> TcpPlan {
        TcpPlan {
            id: 0,
            index: 0,
            from: End::From,
            start: Instant::START,
            stop: Instant::NEVER,
            cc: "reno".to_owned(),
            kernel_cc: "reno".to_owned(),
            app: App::default(),
            options,
            dscp: Dscp::Ef,
            seed: 1,
            addresses: Addresses::Path,
        }
    }

    fn get(socket: impl AsFd, level: libc::c_int, option: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = 0;
        let mut length = size_of_val(&value) as libc::socklen_t;
        let (fd, place) = (socket.as_fd().as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the kernel writes one int, which lives for the call.
        let got = unsafe { libc::getsockopt(fd, level, option, place, &raw mut length) };
        assert_eq!(got, 0, "option {option}");
        value
    }

    #[test]
    fn both_ends_have_what_was_asked_for() {
        let half = Duration::from_millis(1500);
        let keepalive = KeepAlive { time: half, interval: Duration::from_secs(3), probes: 4 };
        let plan = plan(TcpOptions {
            nodelay: true,
            cork: true,
            keepalive: Some(keepalive),
            receive_buffer: Some(Bytes::new(50_000)),
            ..TcpOptions::default()
        });
        let anywhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let listener = super::super::server::listen(&plan, anywhere).unwrap();
        listener.set_nonblocking(false).unwrap();
        let client = open(&plan, Side::Client).unwrap();
        let client = std::net::TcpStream::from(client);
        connect(&client, &listener);
        let (server, _) = listener.accept().unwrap();
        for socket in [client.as_fd(), server.as_fd()] {
            let tcp = |option| get(socket, libc::IPPROTO_TCP, option);
            assert_eq!((tcp(libc::TCP_NODELAY), tcp(libc::TCP_CORK)), (1, 1));
            let alive = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT].map(tcp);
            assert_eq!(alive, [2, 3, 4]);
            assert_eq!(get(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            assert_eq!(get(socket, libc::IPPROTO_IP, libc::IP_TOS), 0xb8);
            assert_eq!(get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF), 100_000);
        }
        let chosen = |socket| getsockopt(socket, sockopt::TcpCongestion).unwrap();
        assert_eq!(chosen(&client), "reno");
    }

    fn connect(client: &std::net::TcpStream, listener: &TcpListener) {
        use nix::sys::socket::{SockaddrIn, connect};
        let Ok(std::net::SocketAddr::V4(address)) = listener.local_addr() else { panic!("IPv4") };
        client.set_nonblocking(false).unwrap();
        connect(client.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
    }

    #[test]
    fn by_default_nothing_is_set() {
        let socket = open(&plan(TcpOptions::default()), Side::Client).unwrap();
        assert_eq!(get(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
        assert_eq!(get(&socket, libc::IPPROTO_TCP, libc::TCP_CORK), 0);
        assert_eq!(get(&socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    }

    #[test]
    fn options_beyond_linuxs_limits_are_named() {
        let refused = |options: TcpOptions| check(&options).unwrap_err().0;
        let huge = Some(Bytes::new(1 << 31));
        let keepalive = |keepalive| TcpOptions { keepalive: Some(keepalive), ..Default::default() };
        let long = Duration::from_secs(40_000);
        let usual = KeepAlive::default();
        assert_eq!(
            refused(TcpOptions { receive_buffer: huge, ..Default::default() }),
            "receive_buffer"
        );
        assert_eq!(refused(keepalive(KeepAlive { time: long, ..usual })), "keepalive.time");
        assert_eq!(refused(keepalive(KeepAlive { interval: long, ..usual })), "keepalive.interval");
        assert_eq!(refused(keepalive(KeepAlive { probes: 0, ..usual })), "keepalive.probes");
        assert_eq!(check(&keepalive(usual)), Ok(()));
    }
}

//! `TCP_INFO`: what the kernel tells about a connection.

use skyhop_model::CongestionState;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

use crate::error::{Context, HostError};

/// The slow-start threshold that means that there is none (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The fields of `struct tcp_info` (linux/tcp.h) that a run samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// open, disorder, cwr, recovery or loss.
    pub state: CongestionState,
    /// Congestion window.
    pub cwnd_packets: u32,
    /// Slow-start threshold; `None` while it is infinite.
    pub ssthresh_packets: Option<u32>,
    /// `None` before the first sample.
    pub srtt_us: Option<u32>,
    /// Packets sent and neither acknowledged nor known lost.
    pub inflight_packets: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// `None` when the kernel sets no limit.
    pub pacing_rate_bps: Option<u64>,
    /// Payload received in order.
    pub bytes_received: u64,
    /// Segments with payload sent, retransmissions included.
    pub data_segments_sent: u32,
}

/// Asks the kernel about a TCP socket.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo, HostError> {
    // Larger than any kernel's; older kernels fill less, and the rest stays zero.
    let mut bytes = [0_u8; 512];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `bytes`.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(asked).context("cannot read TCP_INFO")?;
    Ok(parse(&bytes))
}

/// Offsets are those of `struct tcp_info`, which only ever grows at its end.
fn parse(bytes: &[u8; 512]) -> TcpInfo {
    let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let (unacked, sacked, lost, retrans) = (u32_at(24), u32_at(28), u32_at(32), u32_at(36));
    let pacing_rate = u64_at(104);
    TcpInfo {
        state: CongestionState::from_linux(bytes[1]),
        cwnd_packets: u32_at(80),
        ssthresh_packets: Some(u32_at(76)).filter(|ssthresh| *ssthresh < INFINITE_SSTHRESH),
        srtt_us: Some(u32_at(68)).filter(|srtt| *srtt > 0),
        // tcp_packets_in_flight of linux/tcp.h.
        inflight_packets: (unacked + retrans).saturating_sub(sacked + lost),
        retransmits: u32_at(100),
        pacing_rate_bps: (pacing_rate != u64::MAX).then(|| pacing_rate.saturating_mul(8)),
        bytes_received: u64_at(128),
        data_segments_sent: u32_at(156),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_and_missing_values_are_none() {
        let mut bytes = [0; 512];
        bytes[76..80].copy_from_slice(&INFINITE_SSTHRESH.to_ne_bytes());
        bytes[104..112].copy_from_slice(&u64::MAX.to_ne_bytes());
        let info = parse(&bytes);
        assert_eq!((info.ssthresh_packets, info.srtt_us, info.pacing_rate_bps), (None, None, None));
        assert_eq!(info.state, CongestionState::Open);
    }

    #[test]
    fn a_fresh_connection_is_read_as_the_kernel_has_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut sender, &[1; 1000]).unwrap();
        std::io::Read::read_exact(&mut receiver, &mut [0; 1000]).unwrap();
        assert_eq!(tcp_info(&receiver).unwrap().bytes_received, 1000);
        let info = tcp_info(&sender).unwrap();
        assert_eq!(
            (info.data_segments_sent, info.retransmits, info.state),
            (1, 0, CongestionState::Open)
        );
        assert!(info.cwnd_packets >= 10 && info.ssthresh_packets.is_none(), "{info:?}");
    }
}

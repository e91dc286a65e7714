//! Kernel's information about a TCP connection: the socket option `TCP_INFO` and sock_diag(7).

use skyhop_model::CongestionState;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

use crate::error::{Context, HostError};

/// Initial slow-start threshold, which means infinite (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// Fields of `struct tcp_info` (linux/tcp.h) that a run samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Congestion state: open, disorder, cwr, recovery or loss.
    pub state: CongestionState,
    /// Congestion window, in packets.
    pub cwnd_packets: u32,
    /// Slow-start threshold, in packets; `None` while it is infinite.
    pub ssthresh_packets: Option<u32>,
    /// Smoothed RTT, in us; `None` before the first sample.
    pub srtt_us: Option<u32>,
    /// Packets sent, but neither acknowledged nor considered lost.
    pub inflight_packets: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Pacing rate, in bit/s; `None` if it is unlimited.
    pub pacing_rate_bps: Option<u64>,
    /// Bytes sent and acknowledged, including one byte each for SYN and FIN.
    pub bytes_acked: u64,
    /// Bytes received in order, including one byte for the FIN.
    pub bytes_received: u64,
    /// Segments with payload sent, including retransmissions.
    pub data_segments_sent: u32,
}

/// Read `TCP_INFO` of a socket.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo, HostError> {
    // The kernel only appends fields to the struct: an older kernel leaves the rest zero.
    // SAFETY: all of its fields are numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `info`.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    Errno::result(asked).context("cannot read TCP_INFO")?;
    Ok(TcpInfo::from(info))
}

impl TcpInfo {
    /// Parse the `INET_DIAG_INFO` attribute of sock_diag(7); fields that an older kernel does not send are zero.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        // SAFETY: all of its fields are numbers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        let length = bytes.len().min(size_of_val(&info));
        // SAFETY: both are at least that long and do not overlap; any bytes are numbers.
        unsafe { (&raw mut info).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
        Self::from(info)
    }
}

impl From<libc::tcp_info> for TcpInfo {
    fn from(info: libc::tcp_info) -> Self {
        let ssthresh = Some(info.tcpi_snd_ssthresh).filter(|packets| *packets < INFINITE_SSTHRESH);
        let pacing_rate = Some(info.tcpi_pacing_rate).filter(|rate| *rate != u64::MAX);
        // As tcp_packets_in_flight of include/net/tcp.h computes it.
        let inflight_packets = (info.tcpi_unacked.saturating_add(info.tcpi_retrans))
            .saturating_sub(info.tcpi_sacked.saturating_add(info.tcpi_lost));
        Self {
            state: CongestionState::from_linux(info.tcpi_ca_state),
            cwnd_packets: info.tcpi_snd_cwnd,
            ssthresh_packets: ssthresh,
            srtt_us: Some(info.tcpi_rtt).filter(|srtt| *srtt > 0),
            inflight_packets,
            retransmits: info.tcpi_total_retrans,
            pacing_rate_bps: pacing_rate.map(|rate| rate.saturating_mul(8)),
            bytes_acked: info.tcpi_bytes_acked,
            bytes_received: info.tcpi_bytes_received,
            data_segments_sent: info.tcpi_data_segs_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_and_missing_values_are_none() {
        // SAFETY: as above.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        info.tcpi_snd_ssthresh = INFINITE_SSTHRESH;
        info.tcpi_pacing_rate = u64::MAX;
        let info = TcpInfo::from(info);
        assert_eq!((info.ssthresh_packets, info.srtt_us, info.pacing_rate_bps), (None, None, None));
        assert_eq!(info.state, CongestionState::Open);
    }

    #[test]
    fn tcp_info_of_any_length_is_parsed() {
        let info = vec![1; size_of::<libc::tcp_info>()];
        skyhop_needs::fuzz::Trial::of_bytes("tcp_info", [info]).run(|bytes| {
            let info = TcpInfo::from_bytes(bytes);
            // Newer kernels send more fields; older ones send fewer.
            let is_whole = bytes.len() >= size_of::<libc::tcp_info>();
            if is_whole || info == TcpInfo::from_bytes(&[bytes, &[0; 256]].concat()) {
                return if is_whole { Ok(()) } else { Err("the end is missing") };
            }
            panic!("what is missing is not zero: {info:?}")
        });
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

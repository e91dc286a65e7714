//! Random damage to captures, packets and timing errors as users write them.

use skyhop_needs::fuzz::{Trial, check_line};
use skyhop_signal::blind::{Period, estimate};
use skyhop_signal::capture::{Conversations, busiest_conversation};
use skyhop_signal::{TimingError, TimingErrorText};
use skyhop_units::{Duration, UtcInstant};

use crate::capture::{A, B, pcap, pcapng, tcp_packet};

const PERIOD: Period = Period::Known(Duration::from_secs(15));

fn packets() -> Vec<(u64, Vec<u8>)> {
    let at = |ms: u64| 1_700_000_000_000_000 + ms * 1000;
    vec![
        (at(0), tcp_packet(A, B, (443, 51_000))),
        (at(7), tcp_packet(B, A, (51_000, 443))),
        (at(15_007), tcp_packet(A, B, (443, 51_000))),
    ]
}

fn read(bytes: &[u8]) -> Result<(), String> {
    for stream in busiest_conversation(bytes).map_err(|error| error.to_string())?.streams {
        check_line(&stream.name);
        let found = estimate(&stream.samples, PERIOD);
        assert_eq!(found.samples, stream.samples.len());
    }
    Ok(())
}

#[test]
fn captures() {
    Trial::of_bytes("pcap", [pcap(&packets())]).run(read);
    Trial::of_bytes("pcapng", [pcapng(&packets())]).run(read);
}

#[test]
fn packets_from_anywhere() {
    let mut ipv6 = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
    ipv6.extend([0x20; 32]);
    ipv6.extend(&tcp_packet(A, B, (443, 51_000))[20..]);
    Trial::of_bytes("ip packets", [tcp_packet(A, B, (443, 51_000)), ipv6]).run(|bytes| {
        let mut seen = Conversations::default();
        for second in 0..3 {
            seen.arrived(UtcInstant::from_unix_nanos(second * 1_000_000_000), bytes);
        }
        match seen.estimate(PERIOD) {
            Some((name, found)) => {
                check_line(&name);
                assert_eq!(found.samples, 3);
                Ok(())
            }
            None => Err("it is not a TCP or UDP packet"),
        }
    });
}

#[test]
fn timing_errors() {
    Trial::of_text("timing errors", ["none", "report-timing", "-1.5 s", "20 ms"]).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let read: TimingError = text.parse().map_err(|error: TimingErrorText| error.to_string())?;
        assert_eq!(read.to_string().parse::<TimingError>().ok(), Some(read));
        Ok::<(), String>(())
    });
}

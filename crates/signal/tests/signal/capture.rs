//! Captures that the tests write byte by byte.

use skyhop_signal::blind::{Period, estimate};
use skyhop_signal::capture::{CaptureError, Conversations, busiest_conversation};
use skyhop_units::{Duration, UtcInstant};

pub const A: [u8; 4] = [192, 0, 2, 1];
pub const B: [u8; 4] = [192, 0, 2, 7];

/// Build an IPv4 packet with a TCP header and no payload (RFC 791, RFC 9293).
pub fn tcp_packet(from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    packet.extend(from);
    packet.extend(to);
    packet.extend(ports.0.to_be_bytes());
    packet.extend(ports.1.to_be_bytes());
    packet.extend([0; 8]);
    packet.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    packet
}

/// Build a pcap file (draft-ietf-opsawg-pcap) with timestamps in microseconds and raw IP packets.
pub fn pcap(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535_u32.to_le_bytes());
    file.extend(101_u32.to_le_bytes());
    for (at_us, bytes) in packets {
        for word in [at_us / 1_000_000, at_us % 1_000_000, bytes.len() as u64, bytes.len() as u64] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// Build a pcapng file (draft-ietf-opsawg-pcapng) with timestamps in nanoseconds and Ethernet frames.
pub fn pcapng(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len()) as u32;
        [&kind.to_le_bytes(), &length.to_le_bytes(), body, &length.to_le_bytes()].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    // Link type Ethernet, option if_tsresol = 9 (nanoseconds), end of options.
    let interface = [1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    for (at_us, ip) in packets {
        let frame = [&[0; 12][..], &[8, 0], ip].concat();
        let at_ns = at_us * 1000;
        let mut body = 0_u32.to_le_bytes().to_vec();
        for word in [at_ns >> 32, at_ns & 0xffff_ffff, frame.len() as u64, frame.len() as u64] {
            body.extend((word as u32).to_le_bytes());
        }
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

/// Packets of 120 s: data every 2 ms and ACKs every 4 ms, interrupted by an outage of 60 ms at second 7.3 of every 15,
/// and packets of another flow.
fn conversation() -> Vec<(u64, Vec<u8>)> {
    let down = |us: &u64| (us + 15_000_000 - 7_300_000) % 15_000_000 < 60_000;
    (0..60_000_u64)
        .map(|n| 1_700_000_000_000_000 / 15_000_000 * 15_000_000 + n * 2000)
        .filter(|us| !down(us))
        .flat_map(|us| {
            let data = (us, tcp_packet(A, B, (443, 51_000)));
            let ack = (us + 700, tcp_packet(B, A, (51_000, 443)));
            let other = (us + 900, tcp_packet(A, B, (443, 51_001)));
            let n = us / 2000;
            [Some(data), (n % 2 == 0).then_some(ack), (n % 3 == 0).then_some(other)]
        })
        .flatten()
        .collect()
}

#[test]
fn the_busiest_conversation_is_taken_apart_by_direction() {
    let packets = conversation();
    for file in [pcap(&packets), pcapng(&packets)] {
        let streams = busiest_conversation(file.as_slice()).unwrap().streams;
        let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
        let data = "TCP 192.0.2.1:443 > 192.0.2.7:51000";
        assert_eq!(names, [data, "TCP 192.0.2.7:51000 > 192.0.2.1:443"]);
        assert_eq!(streams[0].samples[0].at.unix_nanos() as u64, packets[0].0 * 1000);
        assert!(streams[0].samples.len() > streams[1].samples.len());
        for stream in streams {
            let found = estimate(&stream.samples, Period::Known(Duration::from_secs(15)));
            let offset_s = found.grid.unwrap().offset.as_secs_f64();
            assert!((offset_s - 7.3).abs() <= 0.005, "{}: {found:?}", stream.name);
        }
    }
}

#[test]
fn arrivals_are_grouped_by_flow_and_forgotten() {
    let period = Period::Known(Duration::from_secs(15));
    let mut seen = Conversations::default();
    assert_eq!(seen.estimate(period), None);
    let packets = conversation();
    for (us, packet) in &packets {
        seen.arrived(UtcInstant::from_unix_nanos(*us as i64 * 1000), packet);
    }
    let last = UtcInstant::from_unix_nanos(packets.last().unwrap().0 as i64 * 1000);
    let (name, found) = seen.estimate(period).unwrap();
    assert!(name.starts_with("TCP 192.0.2."), "{name}");
    let offset_s = found.grid.unwrap().offset.as_secs_f64();
    assert!((offset_s - 7.3).abs() <= 0.005, "{found:?}");
    seen.arrived(last.after(Duration::from_secs(1)), &[0x45, 0, 0]);
    seen.forget(last.after(Duration::from_secs(2)));
    assert_eq!(seen.estimate(period), None);
}

#[test]
fn files_that_are_not_captures_are_refused() {
    let error = |bytes: &[u8]| busiest_conversation(bytes).unwrap_err();
    assert_eq!(error(b"unix_ns,rtt_ms\n1734546419040668928,17.8\n"), CaptureError::NotACapture);
    assert_eq!(error(b""), CaptureError::NotACapture);
    assert_eq!(error(&pcap(&[])), CaptureError::Empty);
    let mut infrared = pcap(&conversation()[..1]);
    infrared[20] = 144;
    assert_eq!(error(&infrared), CaptureError::LinkType(144));
}

#[test]
fn a_capture_that_ends_within_a_packet_gives_its_whole_packets() {
    let packets = &conversation()[..10];
    for mut file in [pcap(packets), pcapng(packets)] {
        assert_eq!(busiest_conversation(file.as_slice()).unwrap().cut_after, None);
        file.truncate(file.len() - 7);
        let found = busiest_conversation(file.as_slice()).unwrap();
        assert_eq!(found.cut_after, Some(9));
        assert!(!found.streams.is_empty());
    }
    let first = pcap(&packets[..1]);
    let error = busiest_conversation(&first[..first.len() - 7]).unwrap_err();
    assert!(matches!(error, CaptureError::Damaged { packets: 0, .. }));
}

#[test]
fn link_types_differ_only_in_the_header_before_ip() {
    let ip = tcp_packet(A, B, (443, 51_000));
    let expected = busiest_conversation(pcap(&[(0, ip.clone())]).as_slice()).unwrap();
    let headers: [(u8, &[u8]); 12] = [
        (0, &[2, 0, 0, 0]),
        (108, &[0, 0, 0, 2]),
        (9, &[0xff, 0x03, 0x00, 0x21]),
        (9, &[0x00, 0x21]),
        (9, &[0x21]),
        (50, &[0xff, 0x03, 0x00, 0x21]),
        (204, &[1, 0xff, 0x03, 0x00, 0x21]),
        (12, &[]),
        (14, &[]),
        (101, &[]),
        (228, &[]),
        (1, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]),
    ];
    for (link, header) in headers {
        let mut file = pcap(&[(0, [header, &ip[..]].concat())]);
        file[20] = link;
        assert_eq!(busiest_conversation(file.as_slice()).unwrap(), expected, "{link}");
    }
    let mut control = pcap(&[(0, [&[0xff, 0x03, 0xc0, 0x21][..], &ip].concat())]);
    control[20] = 9;
    assert_eq!(busiest_conversation(control.as_slice()).unwrap_err(), CaptureError::Empty);
}

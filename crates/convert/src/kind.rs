//! Formats of logs, told by their first bytes.

use std::path::Path;

/// First bytes of a capture: pcap (in microseconds or nanoseconds, in either byte order) or pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// First words of a log of ping.
const PINGS: [&str; 3] = ["PING ", "Ping ", "Pinging "];

/// Return the format of a log, told by its first bytes and its name; csv if no other fits.
pub fn format_of(start: &[u8], name: &Path) -> &'static str {
    if CAPTURES.iter().any(|magic| start.starts_with(magic)) {
        return "pcap";
    }
    let text = String::from_utf8_lossy(start);
    let begin = text.trim_start();
    if begin.strip_prefix('[').unwrap_or(begin).trim_start().starts_with('{') {
        if ["\"prb_id\"", "\"msm_id\"", "\"dst_addr\""].iter().any(|key| text.contains(key)) {
            return "atlas";
        }
        let is_iperf3 = ["\"connected\"", "\"intervals\"", "\"event\""];
        return if is_iperf3.iter().any(|key| text.contains(key)) { "iperf3" } else { "irtt" };
    }
    let is_answer = |line: &str| {
        line.contains("icmp_seq") || line.contains(" TTL=") || line.contains(" bytes from ")
    };
    let is_ping = |line: &str| {
        PINGS.iter().any(|begin| line.contains(begin)) || is_answer(line) || is_fping(line)
    };
    if text.lines().any(is_ping) {
        return "ping";
    }
    match text.lines().next().unwrap_or_default().trim() {
        first if first.starts_with(|c: char| c.is_ascii_digit()) && first.contains('$') => "leoem",
        first if !first.is_empty() && first.bytes().all(|b| b.is_ascii_digit()) => {
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            if name.contains("bw") { "leocc" } else { "mahimahi" }
        }
        _ => "csv",
    }
}

/// Whether a line is from `fping -l`, such as `192.0.2.1 : [0], 64 bytes, 37.0 ms (37.0 avg, 0% loss)`.
fn is_fping(line: &str) -> bool {
    line.split_once(" : [").is_some_and(|(_, rest)| rest.contains("], ") && rest.contains("% loss"))
}

//! Measured paths: conversion of small series, and error messages about damaged files.

use skyhop_model::PathEventKind;

use proptest::prelude::*;
use skyhop_path::export::write_csv;
use skyhop_path::import::{
    AccessDirection, MeasuredOptions, parse_csv, parse_irtt, parse_leocc, parse_leocc_delays,
    parse_mahimahi, parse_mahimahi_packets, parse_ping,
};
use skyhop_path::{BetweenFrames, Frame, PathTrace};
use skyhop_units::{Duration, Instant};

fn options() -> MeasuredOptions {
    MeasuredOptions::default()
}

fn at_ms(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

/// Return the frame that is valid at a time.
fn frame_at(trace: &PathTrace, at: Instant) -> &Frame {
    &trace.frames[trace.frames.partition_point(|frame| frame.at <= at) - 1]
}

fn events(trace: &PathTrace) -> Vec<(u64, PathEventKind)> {
    trace.events().map(|event| (event.at.as_nanos() / 1_000_000, event.kind)).collect()
}

/// Round trip of a probe sent at `sent` over a link that keeps packets in order; `None` while the path is down.
fn answer(trace: &PathTrace, sent: Instant) -> Option<Duration> {
    let there = sent + frame_at(trace, sent).delay?;
    let back = there + frame_at(trace, there).delay_back?;
    Some(back - sent)
}

pub const PING: &str = "\
PING example.net (192.0.2.1) 56(84) bytes of data.
[1700000000.020000] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 time=20.0 ms
[1700000000.130000] 64 bytes from 192.0.2.1: icmp_seq=2 ttl=56 time=30.0 ms
no answer yet for icmp_seq=3
[1700000000.340000] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=56 time=40.0 ms
[1700000000.340010] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=56 time=40.0 ms (DUP!)
From 10.0.0.1 icmp_seq=5 Destination Host Unreachable
[1700000000.820000] 64 bytes from 192.0.2.1: icmp_seq=9 ttl=56 time=20.0 ms

--- example.net ping statistics ---
13 packets transmitted, 4 received, 69% packet loss, time 1200ms
rtt min/avg/max/mdev = 20.000/27.500/40.000/8.291 ms
";

fn ping(text: &str) -> Result<PathTrace, String> {
    let read = parse_ping(text.as_bytes(), &options()).map_err(|error| error.to_string())?;
    Ok(read.trace)
}

#[test]
fn pings_are_sent_their_round_trip_before_their_time() {
    let trace = ping(PING).unwrap();
    assert_eq!(trace.header.start.unwrap().unix_nanos(), 1_700_000_000_000_000_000);
    assert_eq!(trace.header.between_frames, BetweenFrames::Step);
    assert_eq!(trace.header.source, "import ping");
    for (sent_ms, rtt_ms) in [(0, 20), (100, 30), (300, 40), (800, 20)] {
        assert_eq!(answer(&trace, at_ms(sent_ms)), Some(Duration::from_millis(rtt_ms)));
    }
    // A rise takes effect halfway between two probes.
    assert_eq!(frame_at(&trace, at_ms(49)).delay, Some(Duration::from_millis(10)));
    assert_eq!(frame_at(&trace, at_ms(50)).delay, Some(Duration::from_millis(15)));
}

#[test]
fn several_lost_in_a_row_are_an_outage_and_single_ones_a_loss_ratio() {
    let trace = ping(PING).unwrap();
    // The first of four lost probes was sent at 400 ms and would have reached the far end 20 ms later; the next
    // answered one was sent at 800 ms. According to the closing statistics, four more were lost at the end.
    let expected =
        [(420, PathEventKind::Lost), (800, PathEventKind::Restored), (910, PathEventKind::Lost)];
    assert_eq!(events(&trace), expected);
    assert_eq!(answer(&trace, at_ms(419)), None, "its answer meets the outage");
    assert_eq!(answer(&trace, at_ms(399)), Some(Duration::from_millis(40)));
    assert_eq!(answer(&trace, at_ms(799)), None);
    // One of the other five probes was lost.
    assert_eq!(trace.frames[0].loss, Some(0.2));
}

#[test]
fn one_lost_of_a_probe_per_second_is_no_blackout() {
    let lost_at = |lost: &[u32]| {
        let answered = (1..=41).filter(|sequence| !lost.contains(sequence));
        let line = |sequence| format!("64 bytes from 192.0.2.1: icmp_seq={sequence} time=20 ms\n");
        ping(&answered.map(line).collect::<String>()).unwrap()
    };
    let trace = lost_at(&[10]);
    assert_eq!(events(&trace), []);
    // One of the twenty probes of the first 20 s is lost, and none of the next.
    assert_eq!(frame_at(&trace, at_ms(9_000)).loss, Some(0.05));
    assert_eq!(frame_at(&trace, at_ms(20_000)).loss, Some(0.0));
    // The remainder after the last whole 20 s is too short for its own ratio.
    let trace = lost_at(&[40]);
    assert_eq!(frame_at(&trace, at_ms(40_000)).loss, Some(1.0 / 21.0));
}

#[test]
fn pings_without_times_were_sent_at_equal_intervals() {
    let mut text = String::new();
    for line in PING.lines().filter(|line| !line.contains("DUP")) {
        text.push_str(line.split_once("] ").map_or(line, |(_, rest)| rest));
        text.push('\n');
    }
    let trace = ping(&text).unwrap();
    assert_eq!(trace.header.start, None);
    assert_eq!(answer(&trace, at_ms(300)), Some(Duration::from_millis(40)), "1200 ms for 13");
    let given = MeasuredOptions { interval: Some(Duration::from_secs(2)), ..options() };
    let trace = parse_ping(text.as_bytes(), &given).unwrap().trace;
    assert_eq!(answer(&trace, at_ms(6_000)), Some(Duration::from_millis(40)));
}

#[test]
fn sequence_numbers_go_on_after_16_bits() {
    let line = |sequence: u32, ms: u32| {
        format!("64 bytes from 192.0.2.1: icmp_seq={sequence} ttl=56 time={ms} ms\n")
    };
    let text: String =
        [(65_534, 10), (65_535, 11), (0, 12), (1, 13)].map(|(s, ms)| line(s, ms)).concat();
    let trace = ping(&text).unwrap();
    assert_eq!(trace.header.duration_ns, 4_000_000_000);
    assert_eq!(answer(&trace, at_ms(3_000)), Some(Duration::from_millis(13)));
}

pub const IRTT: &str = r#"{"version": {"irtt": "0.9.0"}, "round_trips": [
{"seqno": 0, "lost": "false", "timestamps": {"client": {"send": {"wall": 1700000000000000000}}},
 "delay": {"rtt": 30000000, "send": 1020000000, "receive": -990000000}},
{"seqno": 1, "lost": false, "timestamps": {"client": {"send": {"wall": 1700000000100000000}}},
 "delay": {"rtt": 50000000, "send": 1010000000, "receive": -960000000}},
{"seqno": 2, "lost": "true_up", "timestamps": {"client": {"send": {"wall": 1700000000200000000}}},
 "delay": {}}
]}"#;

fn irtt(text: &str) -> Result<PathTrace, String> {
    let read = parse_irtt(text.as_bytes(), &options()).map_err(|error| error.to_string())?;
    Ok(read.trace)
}

#[test]
fn irtt_tells_the_ways_apart_without_the_clocks_difference() {
    let trace = irtt(IRTT).unwrap();
    // The minimum delays are 1010 and -990 ms: the clocks are 1000 ms apart.
    let ways = |ms| {
        let frame = frame_at(&trace, at_ms(ms));
        (frame.delay.unwrap().as_micros(), frame.delay_back.unwrap().as_micros())
    };
    assert_eq!(ways(0), (20_000, 10_000));
    assert_eq!(ways(130), (10_000, 40_000));
    assert_eq!(trace.frames[0].loss, Some(0.0), "a single one lost at the end is not counted");
    let halved = irtt(&IRTT.replace("\"send\": 1010000000, ", "")).unwrap();
    assert_eq!(halved.frames[0].delay, Some(Duration::from_millis(15)));
}

fn csv(text: &str) -> Result<PathTrace, String> {
    let read = parse_csv(text.as_bytes(), &options()).map_err(|error| error.to_string())?;
    Ok(read.trace)
}

#[test]
fn rows_with_a_long_gap_are_an_outage() {
    let mut text = "unix_ns,rtt_ms\n".to_owned();
    for index in (0..10).chain(16..20) {
        text += &format!("{},20.5\n", 1_000_000_000_000_i64 + index * 20_000_000);
    }
    let trace = csv(&text).unwrap();
    // Probes are sent every 20 ms; the one after 180 ms would have turned round 10.25 ms later.
    assert_eq!(events(&trace), [(210, PathEventKind::Lost), (320, PathEventKind::Restored)]);
    assert!(trace.frames.iter().all(|frame| frame.loss.is_none()), "rows cannot tell");
    assert_eq!(trace.header.step_ns, 20_000_000);
}

pub const THROUGHPUT: &str = "20,50,40.5,30,0,0.01,1000\n21,0,41,31,0.5,0,1100\n";

#[test]
fn rates_go_with_the_direction() {
    let down = csv(THROUGHPUT).unwrap();
    assert_eq!(down.frames.len(), 2);
    let frame = &down.frames[0];
    assert_eq!(frame.rate.unwrap().bits_per_second(), 50_000_000);
    assert_eq!((frame.loss, frame.delay), (Some(0.01), Some(Duration::from_millis(30))));
    assert_eq!(frame.delay_back, Some(Duration::from_micros(40_500)));
    assert_eq!(down.header.duration_ns, 200_000_000);
    let up = MeasuredOptions { direction: Some(AccessDirection::Up), ..options() };
    let up = parse_csv(THROUGHPUT.as_bytes(), &up).unwrap().trace;
    assert_eq!(up.frames[1].rate.unwrap().bits_per_second(), 21_000_000);
    assert_eq!((up.frames[1].loss, up.frames[1].delay_back), (Some(0.5), down.frames[1].delay));
}

#[test]
fn deliveries_become_rates_that_let_as_many_packets_pass() {
    // Two packets in each of 30 ms are 20 packets in 10 ms.
    let text: String = (1..=30).map(|ms| format!("{ms}\n{ms}\n")).collect();
    let rtt = Some(Duration::from_millis(50));
    let given = MeasuredOptions { rtt, ..options() };
    let trace = parse_mahimahi(text.as_bytes(), &given).unwrap().trace;
    assert_eq!(trace.frames.len(), 3);
    assert_eq!(trace.frames[2].rate.unwrap().bits_per_second(), 2 * 1514 * 8 * 1000);
    assert_eq!(trace.frames[0].delay, Some(Duration::from_millis(25)));
    assert_eq!(trace.header.duration_ns, 30_000_000);
    // One packet per 20 ms is ten in 200 ms, so that a second is the shortest bin with ten.
    let slow: String = (0..100).map(|index| format!("{}\n", 20 * (index + 1))).collect();
    let trace = parse_mahimahi(slow.as_bytes(), &given).unwrap().trace;
    assert_eq!((trace.frames.len(), trace.header.step_ns), (2, 1_000_000_000));
}

#[test]
fn leocc_takes_a_delay_every_10_ms_and_ends_with_the_shorter_file() {
    let deliveries: String = (1..=50).map(|ms| format!("{ms}\n")).collect();
    let delays = parse_leocc_delays(&b"10\n12.5\n11\n"[..]).unwrap();
    let trace = parse_leocc(deliveries.as_bytes(), &delays, &options()).unwrap().trace;
    assert_eq!(trace.frames.len(), 3);
    assert_eq!(trace.frames[1].delay, Some(Duration::from_micros(12_500)));
    assert_eq!(trace.frames[1].delay_back, trace.frames[1].delay);
    assert_eq!(trace.header.duration_ns, 30_000_000);
}

#[test]
fn a_csv_export_reads_back_as_the_same_path() {
    for trace in [ping(PING), irtt(IRTT), csv(THROUGHPUT)] {
        let mut trace = trace.unwrap();
        trace.header.from.name = "Zürich, \"CH\"".to_owned();
        trace.header.from.latitude_deg = Some(47.370_000_000_000_1);
        let mut bytes = Vec::new();
        write_csv(&trace, &mut bytes).unwrap();
        assert_eq!(parse_csv(&bytes[..], &options()).unwrap().trace, trace);
    }
}

pub const WINDOWS_PING: &str = "\r
Pinging example.net [192.0.2.1] with 32 bytes of data:\r
Reply from 192.0.2.1: bytes=32 time=20ms TTL=117\r
Request timed out.\r
Reply from 10.0.0.1: Destination host unreachable.\r
Reply from 192.0.2.1: bytes=32 time<1ms TTL=117\r
\r
Ping statistics for 192.0.2.1:\r
    Packets: Sent = 4, Received = 2, Lost = 2 (50% loss),\r
Approximate round trip times in milli-seconds:\r
    Minimum = 0ms, Maximum = 20ms, Average = 10ms\r
";

/// Output of ping on a German Windows, whose console does not write UTF-8.
fn german_ping() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (english, german) in [
        ("Pinging", "Ping wird ausgef\u{81}hrt f\u{81}r"),
        ("with 32 bytes of data", "mit 32 Bytes Daten"),
        ("Reply from", "Antwort von"),
        ("time", "Zeit"),
        ("Request Zeitd out", "Zeit\u{81}berschreitung der Anforderung"),
        ("Destination host unreachable", "Zielhost nicht erreichbar"),
        ("Average", "Mittelwert"),
    ] {
        let text = if bytes.is_empty() { WINDOWS_PING.to_owned() } else { string_of(&bytes) };
        bytes = text.replace(english, german).chars().map(|c| c as u8).collect();
    }
    bytes
}

fn string_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[test]
fn windows_pings_in_any_language_are_a_second_apart_and_four_after_a_timeout() {
    let english = ping(WINDOWS_PING).unwrap();
    for (sent_ms, rtt_us) in [(0, 20_000), (6_000, 500)] {
        assert_eq!(answer(&english, at_ms(sent_ms)), Some(Duration::from_micros(rtt_us)));
    }
    assert_eq!(english.header.start, None, "it says nothing of the time of day");
    assert_eq!(english.frames[0].loss, Some(0.5));
    assert!(std::str::from_utf8(&german_ping()).is_err(), "the letters are those of a console");
    let german = parse_ping(&german_ping()[..], &options()).unwrap().trace;
    assert_eq!(german, english);
    // The interval is given, and the log is cut at both ends.
    let cut = WINDOWS_PING.lines().skip(2).take(4).collect::<Vec<_>>().join("\n");
    let interval = Some(Duration::from_millis(500));
    let trace =
        parse_ping(cut.as_bytes(), &MeasuredOptions { interval, ..options() }).unwrap().trace;
    assert_eq!(answer(&trace, at_ms(1_500)), Some(Duration::from_micros(500)));
    let twice = parse_ping(format!("{WINDOWS_PING}{WINDOWS_PING}").as_bytes(), &options()).unwrap();
    assert_eq!(twice.account.to_string(), "4 answers, 4 lost, 15 s; 2 runs of ping");
    let none = ping("Pinging a with 32 bytes of data:\nRequest timed out.\n").unwrap_err();
    assert!(none.contains("there is no answer"), "{none}");
}

#[test]
fn columns_are_found_by_their_names() {
    let plain = csv("1700000000000000000,20\n1700000000100000000,30\n").unwrap();
    for named in [
        "unix_ns,rtt_ms\n1700000000000000000,20\n1700000000100000000,30\n",
        "host,RTT (ms),Timestamp\nx,20,1700000000.0\nx,30,1700000000.1\n",
        "\"time_ms\";\"latency_us\"\n1700000000000,0;20000,0\n1700000000100,0;30000,0\n",
        "date\tping\n2023-11-14T22:13:20Z\t20\n2023-11-14 22:13:20.1\t30\n",
    ] {
        assert_eq!(csv(named).unwrap(), plain, "{named}");
    }
    // Sending times on the measurement's own clock, and lost probes.
    let own = csv("sent_s,rtt_ms\n0,20\n1,timeout\n2,\n3,lost\n4,20\n").unwrap();
    assert_eq!(own.header.start, None);
    assert_eq!(events(&own), [(1_010, PathEventKind::Lost), (4_000, PathEventKind::Restored)]);
    let access = "10,20,5,6,0,0.01,0\n10,20,5,6,0,0.01,100\n";
    let swapped = "t_ms,site,dl_Mbps,ul_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss\n\
                   0,a,20,10,5,6,0,0.01\n100,a,20,10,5,6,0,0.01\n";
    assert_eq!(csv(swapped).unwrap(), csv(access).unwrap());
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let ping_cases = [
        ("", "there is no answer"),
        ("<!DOCTYPE html>\n<html>", "line 1: \"<!DOCTYPE html>\" is not a line of ping"),
        ("64 bytes from a: icmp_seq=1 ttl=5 time=nan ms", "line 1: time has \"\" where a number"),
        ("64 bytes from a: icmp_seq=1 ttl=5 time=-1 ms", "line 1: time has \"\" where a number"),
        ("64 bytes from a: icmp_seq=1 ttl=5 time=99999 ms", "line 1: time is 99999; expected 0"),
        ("64 bytes from a: icmp_seq=1 ttl=5 time=20.", "line 1: its time=… has no unit"),
        ("64 bytes from a: ttl=5 time=20.0 ms", "line 1: \"64 bytes from a: ttl=5 time=20.0 ms\""),
        ("16 bytes from a: icmp_seq=1 ttl=5\n\nx", "line 1: no time=… in it"),
        (
            "[1700000005.1] 64 bytes from a: icmp_seq=1 time=1 ms\n\
             [1700000005.0] 64 bytes from a: icmp_seq=2 time=1 ms",
            "line 2: its time is before",
        ),
        (
            "[1700000005.1] 64 bytes from a: icmp_seq=1 time=1 ms\n\
             64 bytes from a: icmp_seq=2 time=1 ms",
            "line 2: some lines have times",
        ),
    ];
    for (text, expected) in ping_cases {
        let error = ping(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let csv_cases = [
        ("", "it is empty; expected unix_ns,rtt_ms"),
        ("<html>", "line 1: \"<html>\" is not a row of numbers"),
        ("5,nan", "line 1: rtt_ms is NaN"),
        ("5,-3", "line 1: rtt_ms is -3; expected 0 to 60000"),
        ("-5,1", "line 1: unix_ns is -5"),
        ("5,-1", "not a single answered probe"),
        ("6,1\n5,1\n", "line 2: unix_ns 5 is before 6 of the row above"),
        ("6,1\n7\n", "line 2: \"7\" is not unix_ns,rtt_ms"),
        ("6,1\n7,1,2\n", "line 2: \"7,1,2\" is not unix_ns,rtt_ms"),
        ("unix_ns,rtt_ms\n", "not a single answered probe"),
        ("0,1\n9000000000000000000,1\n", "spans more than a year"),
        ("1,2,3,4,0,0,5\n1,2,3,4,0,0,5\n", "line 2: t_ms 5 does not come after"),
        ("1,2,3,4,0,1.5,5", "line 1: dl_loss is 1.5; expected 0 to 1"),
        ("1,-2,3,4,0,0,5", "line 1: dl_Mbps is -2"),
        ("time,size\n1,2", "line 1: \"time,size\" needs a column for the time"),
        ("time_s,rtt_ms\n1,2\n3\n", "line 3: \"3\" is not time_s,rtt_ms"),
        ("time_s,rtt_ms\n1,slow", "line 2: rtt_ms has \"slow\" where a number belongs"),
        ("date,rtt_ms\n1 May 12:00,2", "line 2: date has \"1 May 12:00\"; expected such as 2026"),
        ("# skyhop path {}", "line 1: the header: missing field `"),
    ];
    for (text, expected) in csv_cases {
        let error = csv(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let irtt_cases = [
        ("<html>".to_owned(), "line 1: not irtt's JSON: expected value"),
        ("{}".to_owned(), "missing field `round_trips`"),
        (IRTT[..IRTT.len() / 2].to_owned(), "not irtt's JSON: EOF while parsing"),
        (IRTT.replace("30000000", "-3"), "seqno 0: a delay.rtt of -3 ns"),
        (IRTT.replace("\"seqno\": 1", "\"seqno\": 0"), "seqno 0: it does not come after"),
        (IRTT.replace("\"rtt\": 50000000,", ""), "seqno 1: it is not lost, but has no delay.rtt"),
    ];
    for (text, expected) in irtt_cases {
        let error = irtt(&text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mahimahi =
        |text: &str| parse_mahimahi(text.as_bytes(), &options()).unwrap_err().to_string();
    assert!(mahimahi("").contains("it is empty"));
    assert!(mahimahi("5\n4\n").contains("line 2: 4 ms is before 5 ms"));
    assert!(mahimahi("5\n-4\n").contains("line 2: \"-4\" where a time belongs"));
    assert!(mahimahi("99999999999\n").contains("line 1: 99999999999 ms is more than four hours"));
    let delays = |text: &str| parse_leocc_delays(text.as_bytes()).unwrap_err().to_string();
    assert!(delays("").contains("it is empty"));
    assert!(delays("1\n\n2\n").contains("line 2: the one-way delay in ms has \"\""));
}

#[test]
fn a_last_line_that_is_cut_off_is_passed_over_and_counted() {
    let plain = "1700000000000000000,20\n1700000001000000000,30\n1700000002000000000,40.5\n";
    let access = "10,20,5,6,0,0.01,0\n10,20,5,6,0,0.01,100\n10,20,5,6,0,0.01,200\n";
    for text in [
        plain.to_owned(),
        format!("unix_ns,rtt_ms\n{plain}"),
        plain.replace(',', ",a,").replacen("17", "time,host,rtt_ms\n17", 1),
        plain.replace(',', ",a,").replacen("17", "time,host,down_mbps\n17", 1),
        access.to_owned(),
        format!("ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms\n{access}"),
    ] {
        let read = |text: &str| parse_csv(text.as_bytes(), &options());
        let last = text.trim_end().rfind('\n').unwrap() + 1;
        for end in last..text.len() {
            assert!(read(&text[..end]).is_ok(), "{:?}", &text[..end]);
        }
        let cut = read(&text[..last + 2]).unwrap();
        assert_eq!(cut.trace, read(&text[..last]).unwrap().trace, "{text}");
        let line = text.lines().count();
        let note =
            format!("; 1 line passed over, such as line {line}: \"{}\"", &text[last..last + 2]);
        assert!(cut.account.to_string().ends_with(&note), "{}", cut.account);
        // A line with an end is whole, and so is the only one.
        assert!(read(&format!("{}\n", &text[..last + 2])).is_err(), "{text}");
    }
    assert!(csv("time_s,rtt_ms\n1").unwrap_err().contains("line 2: \"1\" is not"));
    let path = parse_csv(plain.as_bytes(), &options()).unwrap().trace;
    let mut whole = Vec::new();
    skyhop_path::export::write_csv(&path, &mut whole).unwrap();
    assert!(parse_csv(&whole[..whole.len() - 4], &options()).is_err());
}

#[test]
fn a_trace_of_mahimahi_has_packets_in_each_millisecond() {
    let packets = |text: &str| parse_mahimahi_packets(text.as_bytes()).unwrap();
    // A time is the end of a millisecond; that of 0 is taken for the first.
    assert_eq!(packets("0\n1\n3\n3\n"), [2, 0, 2]);
}

#[test]
fn a_file_without_an_end_is_given_up() {
    let endless = std::io::BufReader::new(std::io::repeat(b'1'));
    let error = parse_csv(endless, &options()).unwrap_err().to_string();
    assert!(error.contains("line 1: it is longer than 100000 bytes"), "{error}");
    let rows = |line: Vec<u8>| std::io::BufReader::new(Repeated(line.into_iter().cycle()));
    let error = parse_csv(rows(b"1,2\n".to_vec()), &options()).unwrap_err().to_string();
    assert!(error.contains("line 1000001: more than 1000000 samples"), "{error}");
    let wide = format!("1{}\n", " ".repeat(10_000)).into_bytes();
    let error = parse_mahimahi(rows(wide), &options()).unwrap_err().to_string();
    assert!(error.contains("more than 128 MiB of text"), "{error}");
}

struct Repeated<I>(I);

impl<I: Iterator<Item = u8>> std::io::Read for Repeated<I> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer.iter_mut().zip(&mut self.0).for_each(|(slot, byte)| *slot = byte);
        Ok(buffer.len())
    }
}

/// Round trips every 20 ms for four minutes, whose level in each second is `level_ms`.
fn levels(level_ms: impl Fn(u64) -> f64) -> PathTrace {
    let mut text = String::new();
    for index in 0..12_000_u64 {
        // The noise has no period of a second.
        let noise_ms = (index * 7919 % 97) as f64 / 97.0;
        let ms = level_ms(index / 50) + noise_ms;
        text += &format!("{},{ms:.2}\n", 1_700_000_000_000_000_000 + index * 20_000_000);
    }
    csv(&text).unwrap()
}

#[test]
fn level_shifts_on_a_grid_are_handovers() {
    let shifting = |second: u64| [30.0, 36.0, 36.0, 27.0][(second + 8) as usize / 15 % 4];
    let trace = levels(shifting);
    let marked: Vec<u64> =
        trace.events().map(|event| event.at.as_nanos() / 1_000_000_000).collect();
    // Level shifts at 7, 22, 37, …; every fourth one does not change the level.
    let expected: Vec<u64> = (0..16)
        .map(|index| 7 + 15 * index)
        .filter(|at| shifting(*at) != shifting(at - 1))
        .collect();
    assert_eq!(expected.len(), 12);
    assert_eq!(marked, expected);
    assert!(trace.events().all(|event| event.kind == PathEventKind::End));
    assert!(trace.events().all(|event| event.outage == Duration::ZERO));
}

#[test]
fn level_shifts_off_the_grid_are_none() {
    assert_eq!(levels(|_| 30.0).events().count(), 0);
    assert_eq!(levels(|second| [30.0, 36.0][second as usize / 13 % 2]).events().count(), 0);
    assert_eq!(levels(|second| 30.0 + (second * second % 11) as f64).events().count(), 0);
}

proptest! {
    /// Probes at the times of the measurement get the same answers, unless they would overtake each other.
    #[test]
    fn probes_get_the_answers_that_were_measured(
        series in prop::collection::vec((20_u64..200, 1_u64..20), 2..40),
    ) {
        let (mut sent_ms, mut text, mut sent) = (1_000_000, String::new(), Vec::new());
        for (gap_ms, rtt_ms) in series {
            sent_ms += gap_ms + rtt_ms;
            sent.push((sent_ms, rtt_ms));
            text += &format!("{}000000,{rtt_ms}\n", sent_ms + rtt_ms);
        }
        let trace = csv(&text).unwrap();
        for (sent_ms, rtt_ms) in &sent {
            let at = at_ms(sent_ms - sent[0].0);
            prop_assert_eq!(answer(&trace, at), Some(Duration::from_millis(*rtt_ms)));
        }
    }
}

/// Five states of a path, 2 s each; the second begins with an outage of 3 s.
fn stairs() -> PathTrace {
    let ends = ["a", "b"].map(skyhop_path::Endpoint::named);
    let mut trace = PathTrace::fixed(ends, Duration::ZERO, Duration::from_secs(10));
    trace.frames = (0..5)
        .map(|n| {
            let delay = Duration::from_millis(10 * (n + 1));
            Frame {
                at: at_ms(2_000 * n),
                hop_delays: vec![delay],
                delay: Some(delay),
                delay_back: Some(delay),
                ..trace.frames[0].clone()
            }
        })
        .collect();
    trace.header.start = Some("2026-01-01T00:00:00Z".parse().unwrap());
    trace.frames[1].events.push(skyhop_path::PathEvent {
        at: at_ms(2_000),
        kind: PathEventKind::End,
        hop: None,
        outage: Duration::from_secs(3),
    });
    trace
}

#[test]
fn a_path_that_starts_later_has_the_same_states_as_the_whole() {
    for offset_ms in [0, 1, 1_999, 2_000, 2_001, 4_500, 5_000, 9_999] {
        let offset = Duration::from_millis(offset_ms);
        let (whole, part) = (stairs(), stairs().starting_at(offset));
        assert_eq!(part.validate(), Ok(()));
        for ms in 0..10_000 - offset_ms {
            let (there, here) =
                (frame_at(&whole, at_ms(ms + offset_ms)), frame_at(&part, at_ms(ms)));
            assert_eq!(there.delay, here.delay);
        }
        assert_eq!(part.header.duration_ns, (10_000 - offset_ms) * 1_000_000);
        let start =
            part.header.start.unwrap().unix_nanos() - whole.header.start.unwrap().unix_nanos();
        assert_eq!(start, offset_ms as i64 * 1_000_000);
        let down: Vec<(u64, u64)> = part
            .events()
            .map(|event| (event.at.as_nanos() / 1_000_000, event.outage.as_nanos() / 1_000_000))
            .collect();
        match offset_ms {
            0..=2_000 => assert_eq!(down, [(2_000 - offset_ms, 3_000)]),
            2_001..5_000 => assert_eq!(down, [(0, 5_000 - offset_ms)]),
            _ => assert_eq!(down, []),
        }
    }
}

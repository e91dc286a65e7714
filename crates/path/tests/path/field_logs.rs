//! Logs as they come from the field: of several runs, in other languages, with times of other programs, with values that
//! stand for lost probes, and with rates.

use skyhop_model::PathEventKind;
use skyhop_path::import::{
    AccessDirection, Imported, MeasuredOptions, Outcome, parse_atlas, parse_csv, parse_iperf3,
    parse_iperf3_intervals, parse_irtt, parse_ping, parse_round_trips,
};
use skyhop_units::Duration;

use crate::measured::IRTT;

fn options() -> MeasuredOptions {
    MeasuredOptions::default()
}

fn ping(text: &str) -> Imported {
    parse_ping(text.as_bytes(), &options()).unwrap()
}

fn csv(text: &str) -> Imported {
    parse_csv(text.as_bytes(), &options()).unwrap()
}

fn start(imported: &Imported) -> String {
    imported.trace.header.start.unwrap().to_string()
}

fn events(imported: &Imported) -> Vec<(u64, PathEventKind)> {
    imported.trace.events().map(|event| (event.at.as_nanos() / 1_000_000, event.kind)).collect()
}

/// Ten answers of a run that begins at a second, each with its time.
fn run(begin_s: u64, header: &str) -> String {
    let line = |sequence: u64| {
        let at_s = begin_s + sequence;
        format!("[{at_s}.030] 64 bytes from a: icmp_seq={sequence} ttl=56 time=30 ms\n")
    };
    header.to_owned() + &(1..=10).map(line).collect::<String>()
}

const HEADER: &str = "PING a (192.0.2.1) 56(84) bytes of data.\n";
const CLOSING: &str = "\n--- a ping statistics ---\n10 packets transmitted, 10 received, 0% packet loss, time 9012ms\n";

#[test]
fn every_run_of_a_log_counts() {
    let begins = (0..6).map(|minute| 1_700_000_000 + 60 * minute);
    let whole: String = begins.clone().map(|at_s| run(at_s, HEADER) + CLOSING + "\n").collect();
    let read = ping(&whole);
    assert_eq!(read.account.to_string(), "60 answers, 0 lost, 5.2 min; 6 runs of ping");
    assert_eq!(events(&read), [], "the time between two runs was not measured");
    // A watchdog that keeps the answers alone.
    let answers: String = begins.map(|at_s| run(at_s, "")).collect();
    assert_eq!(ping(&answers).trace, read.trace);
    // Without times, one run follows the other.
    let untimed: String = whole
        .lines()
        .map(|line| line.split_once("] ").map_or(line, |(_, rest)| rest).to_owned() + "\n")
        .collect();
    let read = ping(&untimed);
    assert_eq!(read.account.to_string(), "60 answers, 0 lost, 60.1 s; 6 runs of ping");
    assert_eq!(read.trace.header.start, None);
}

#[test]
fn runs_of_a_single_ping_count_too() {
    let line = |n: u64| {
        format!("[{}.5] 64 bytes from a: icmp_seq=1 ttl=56 time=30 ms\n", 1_700_000_000 + n)
    };
    let read = ping(&(0..30).map(line).collect::<String>());
    assert!(read.account.to_string().starts_with("30 answers, 0 lost, 30 s"), "{}", read.account);
    let untimed = "64 bytes from a: icmp_seq=1 ttl=56 time=30 ms\n".repeat(30);
    assert!(ping(&untimed).account.to_string().starts_with("30 answers, 0 lost, 30 s"));
}

#[test]
fn a_run_without_an_answer_is_an_outage_as_long_as_it_took() {
    let lost = "\n--- a ping statistics ---\n10 packets transmitted, 0 received, 100% packet loss, time 9200ms\n";
    let log = run(1_700_000_000, HEADER)
        + CLOSING
        + HEADER
        + lost
        + &run(1_700_000_120, HEADER)
        + CLOSING;
    let read = ping(&log);
    assert_eq!(read.account.to_string(), "20 answers, 10 lost, 130 s; 3 runs of ping");
    assert_eq!(events(&read), [(10_015, PathEventKind::Lost), (20_000, PathEventKind::Restored)]);
}

#[test]
fn late_and_doubled_answers_begin_no_run() {
    let log = "[1700000001.03] 64 bytes from a: icmp_seq=1 ttl=56 time=30 ms\n\
               [1700000001.43] 64 bytes from a: icmp_seq=3 ttl=56 time=30 ms\n\
               [1700000001.44] 64 bytes from a: icmp_seq=2 ttl=56 time=240 ms\n\
               [1700000001.45] 64 bytes from a: icmp_seq=3 ttl=56 time=50 ms（重复！）\n\
               [1700000001.63] 64 bytes from a: icmp_seq=4 ttl=56 time=30 ms\n";
    assert_eq!(ping(log).account.to_string(), "4 answers, 0 lost, 0.8 s");
}

#[test]
fn pings_are_read_in_any_language() {
    let english = "PING a (192.0.2.1) 56(84) bytes of data.\n\
                   64 bytes from a: icmp_seq=1 ttl=56 time=37.9 ms\n\
                   From 10.0.0.1 icmp_seq=2 Destination Host Unreachable\n\
                   64 bytes from a: icmp_seq=3 ttl=56 time=28.9 ms\n\n\
                   --- a ping statistics ---\n\
                   4 packets transmitted, 2 received, 50% packet loss, time 600ms\n\
                   rtt min/avg/max/mdev = 28.4/31.2/37.9/3.1 ms\n";
    let translated = [
        [
            "字节的数据。",
            "64 字节，来自 a",
            "时间=",
            " 毫秒",
            "来自 10.0.0.1 icmp_seq=2 目标主机不可达",
            "--- a ping 统计 ---",
            "已发送 4 个包， 已接收 2 个包, 50% packet loss, time 600ms",
        ],
        [
            "байт данных.",
            "64 байт от a",
            "время=",
            " мс",
            "От 10.0.0.1 icmp_seq=2 Узел недоступен",
            "--- Статистика a ---",
            "4 пакетов отправлено, 2 получено, 50% потеряно, время 600мс",
        ],
        [
            "Bytes an Daten.",
            "64 Bytes von a",
            "Zeit=",
            " ms",
            "Von 10.0.0.1 icmp_seq=2 Zielhost nicht erreichbar",
            "--- a Ping-Statistiken ---",
            "4 Pakete übertragen, 2 empfangen, 50% Paketverlust, Zeit 600ms",
        ],
    ];
    let expected = ping(english);
    assert_eq!(expected.account.to_string(), "2 answers, 2 lost, 0.8 s");
    for [data, from, time, unit, unreachable, statistics, counts] in translated {
        let text = english
            .replace("bytes of data.", data)
            .replace("From 10.0.0.1 icmp_seq=2 Destination Host Unreachable", unreachable)
            .replace("64 bytes from a", from)
            .replace("time=", time)
            .replace(" ms\nFrom", &format!("{unit}\nFrom"))
            .replace("--- a ping statistics ---", statistics)
            .replace("4 packets transmitted, 2 received, 50% packet loss, time 600ms", counts);
        assert_eq!(ping(&text), expected, "{text}");
    }
}

#[test]
fn windows_pings_are_read_in_any_language() {
    let of = |answer: &str| {
        let text = format!("\nX 192.0.2.1 y 32 z:\n{answer}\n{answer}\n{answer}\nx y.\n\nz 1:\n");
        let read = ping(&text);
        assert_eq!(read.account.to_string(), "3 answers, 1 lost, 4 s", "{text}");
        read.trace.frames[0].delay.unwrap()
    };
    for answer in [
        "Ответ от 192.0.2.1: число байт=32 время=37мс TTL=56",
        "来自 192.0.2.1 的回复: 字节=32 时间=37ms TTL=56",
        "192.0.2.1 からの応答: バイト数 =32 時間 =37ms TTL=56",
        "Réponse de 192.0.2.1 : octets=32 temps=37\u{a0}ms TTL=56",
        "\u{fffd}\u{fffd} 192.0.2.1: \u{fffd}\u{fffd}=32 \u{fffd}\u{fffd}\u{fffd}=37\u{fffd}\u{fffd} TTL=56",
    ] {
        assert_eq!(of(answer), Duration::from_micros(18_500));
    }
    assert_eq!(
        of("Ответ от 192.0.2.1: число байт=32 время<1мс TTL=56"),
        Duration::from_micros(250)
    );
}

#[test]
fn times_of_other_programs_are_read_before_a_tools_lines() {
    for [first, second] in [
        ["[2026-05-27 11:23:28.500]", "[2026-05-27 11:23:28.700]"],
        ["2026-05-27T11:23:28.500Z", "2026-05-27T11:23:28.700Z"],
        ["2026-05-27T07:23:28.500-0400:", "2026-05-27T07:23:28.700-0400:"],
        ["2026-05-27 11:23:28,500", "2026-05-27 11:23:28,700"],
        ["2026/05/27 11:23:28.500", "2026/05/27 11:23:28.700"],
        ["1779881008.500", "1779881008.700"],
        ["1779881008500", "1779881008700"],
        ["11:00:00 [1779881008.500]", "11:00:00 [1779881008.700]"],
    ] {
        let log = format!(
            "Start time: 1779881008621\n{first} PING a (192.0.2.1) 38(66) bytes of data.\n\
             {first} 46 bytes from a: icmp_seq=1 ttl=54 time=50.0 ms\n\
             {second} 46 bytes from a: icmp_seq=2 ttl=54 time=50.0 ms\n{second} \n\
             {second} --- a ping statistics ---\n\
             {second} 2 packets transmitted, 2 received, 0% packet loss, time 200ms\nEnd\n"
        );
        let read = ping(&log);
        assert_eq!(start(&read), "2026-05-27T11:23:28.450Z", "{log}");
        assert_eq!(
            read.account.to_string(),
            "2 answers, 0 lost, 0.4 s; 1 line passed over, such as line 1: \"Start time: \
             1779881008621\"",
            "{log}"
        );
    }
    // Times without a date order the answers, and whole seconds do not.
    for stamps in [
        ["23:59:59", "23:59:59", "00:00:00", "00:00:00"],
        ["Dec 31 23:59:59", "Dec 31 23:59:59", "Jan  1 00:00:00", "Jan  1 00:00:00"],
    ] {
        let line = |n: usize| {
            format!(
                "{} pi ping[7]: 64 bytes from a: icmp_seq={} ttl=5 time={} ms\n",
                stamps[n],
                n + 1,
                90 - n
            )
        };
        let read = ping(&(0..4).map(line).collect::<String>());
        assert_eq!(read.account.to_string(), "4 answers, 0 lost, 1.3 s", "{stamps:?}");
        assert_eq!(read.trace.header.start, None);
    }
}

#[test]
fn what_a_tool_says_in_between_is_passed_over() {
    let log = "PING a (192.0.2.1): 56 data bytes\n\
               64 bytes from 192.0.2.1: icmp_seq=0 ttl=53 time=37.900 ms\n\
               92 bytes from 192.168.1.1: Destination Host Unreachable\n\
               Vr HL TOS  Len   ID Flg  off TTL Pro  cks      Src      Dst\n \
               4  5  00 5400 8bb2   0 0000  40  01 1b3c 192.168.1.20  192.0.2.1 \n\n\
               Request timeout for icmp_seq 1\n\
               ping: sendto: No route to host\n\
               64 bytes from 192.0.2.1: icmp_seq=2 ttl=53 time=28.300 ms\n\
               64 bytes from 192.0.2.1: icmp_seq=3 ttl=5";
    let account = ping(log).account.to_string();
    let expected = "2 answers, 1 lost, 3 s; 5 lines passed over, such as line 3: \"92 bytes from";
    assert!(account.starts_with(expected), "{account}");
}

#[test]
fn fping_with_times_is_read() {
    let log = "[1700000000.030] 192.0.2.1 : [0], 64 bytes, 30.0 ms (30.0 avg, 0% loss)\n\
               [1700000002.000] 192.0.2.1 : [1], timed out (30.0 avg, 50% loss)\n\
               [1700000002.040] 192.0.2.1 : [2], 84 bytes, 40.0 ms (35.0 avg, 33% loss)\n";
    let read = ping(log);
    assert_eq!(read.account.to_string(), "2 answers, 1 lost, 3 s");
    assert_eq!(start(&read), "2023-11-14T22:13:20Z");
}

#[test]
fn values_that_stand_for_lost_are_no_round_trips() {
    for lost in ["-1", "0", "0.0", "9999", "inf", "-999", "nan", "", "timeout"] {
        let row =
            |n: u64| format!("{}.0,{}\n", 1_700_000_000 + n, if n == 3 { lost } else { "30" });
        let read = csv(&("time,rtt_ms\n".to_owned() + &(0..10).map(row).collect::<String>()));
        assert_eq!(read.account.to_string(), "9 answers, 1 lost, 10 s", "{lost}");
    }
    // In microseconds, 9999 is a round trip.
    let read = csv("time,rtt_us\n1,9999\n2,9999\n");
    assert_eq!(read.account.to_string(), "2 answers, 2 s");
}

#[test]
fn lens_files_of_irtt_hold_losses_and_both_ways() {
    let row = |n: u64| {
        let at_ns = 1_700_000_000_000_000_000 + n * 10_000_000;
        match n {
            30..60 => format!("{at_ns},0,0,-1\n"),
            7 => format!("{at_ns},0,-1,0\n"),
            8 => format!("{at_ns},-1,0,0\n"),
            _ => format!("{at_ns},30,18,12\n"),
        }
    };
    let text =
        "timestamp,rtt,uplink,downlink\n".to_owned() + &(0..100).map(row).collect::<String>();
    let read = csv(&text);
    assert_eq!(read.account.to_string(), "68 answers, 32 lost, 1 s");
    let frame = &read.trace.frames[0];
    assert_eq!(
        (frame.delay, frame.delay_back),
        (Some(Duration::from_millis(18)), Some(Duration::from_millis(12)))
    );
    let kinds: Vec<_> = events(&read).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [PathEventKind::Lost, PathEventKind::Restored]);
    // Telemetry and blind estimation read the same probes.
    let outcomes = parse_round_trips(text.as_bytes(), "csv").unwrap();
    let lost: u64 = outcomes.outcomes.iter().filter(|o| o.rtt.is_none()).map(|o| o.times).sum();
    assert_eq!((outcomes.outcomes.len(), lost), (100 - 32 + 2, 32));
    assert!(outcomes.losses_known && outcomes.unix);
}

#[test]
fn a_rate_beside_a_round_trip_is_the_paths() {
    let read =
        csv("t_s,host,rate_mbps,rtt_ms\n0.0,a,80,30\n0.1,a,40.5,31\n0.2,a,,\n0.3,a,120,30\n");
    let rates: Vec<f64> =
        read.trace.frames.iter().map(|f| f.rate.unwrap().bits_per_second() as f64 / 1e6).collect();
    assert_eq!((rates[0], *rates.last().unwrap()), (80.0, 120.0));
    assert!(rates.contains(&40.5));
    assert_eq!(read.account.to_string(), "3 answers, 1 lost, 3 rates, 0.4 s; not used: host");
}

#[test]
fn rates_over_time_are_a_path() {
    let rtt = Some(Duration::from_millis(40));
    let given = MeasuredOptions { rtt, ..options() };
    for (text, mbps) in [
        (
            "time,throughput_mbps,retrans\n2026-05-27T11:18:48.0,80,0\n2026-05-27T11:18:48.5,40,1\n",
            80,
        ),
        ("Time (s);Bandwidth (Mbit/s)\n0,0;80,0\n0,5;40,0\n", 80),
        ("timestamp,goodput_kbps\n1,80000\n2,40000\n", 80),
        ("timestamp,dl_MB/s,ul_mbps\n1,10,5\n2,5,5\n", 80),
        ("unix_s,offered_mbps,received_bps\n1,900,80e6\n2,900,40e6\n", 80),
    ] {
        let read = parse_csv(text.as_bytes(), &given).unwrap();
        let first = &read.trace.frames[0];
        assert_eq!(first.rate.unwrap().bits_per_second(), mbps * 1_000_000, "{text}");
        assert_eq!(first.delay, Some(Duration::from_millis(20)));
        assert_eq!(read.trace.frames.len(), 2);
    }
    let up = MeasuredOptions { direction: Some(AccessDirection::Up), ..given };
    let read = parse_csv(&b"timestamp,dl_mbps,ul_mbps\n1,10,5\n2,5,5\n"[..], &up).unwrap();
    assert_eq!(read.trace.frames[0].rate.unwrap().bits_per_second(), 5_000_000);
    assert_eq!(read.account.to_string(), "2 rates, 2 s; not used: dl_mbps");
    // A terminal's status states the rate in use.
    let status = "time,pop_ping_drop_rate,pop_ping_latency_ms,downlink_throughput_bps\n1,0,30,500\n2,0,31,600\n";
    let read = csv(status);
    assert!(read.trace.frames.iter().all(|frame| frame.rate.is_none()));
    let expected = "2 answers, 2 s; not used: pop_ping_drop_rate, downlink_throughput_bps";
    assert_eq!(read.account.to_string(), expected);
}

#[test]
fn tables_are_read_by_a_csv_reader() {
    let plain = csv("time,rtt_ms\n1779881008.0,30\n1779881008.5,31\n");
    for text in [
        "\"place\",\"time\",\"rtt_ms\"\n\"Victoria, BC\",1779881008.0,30\n\"a \"\"b\"\"\",1779881008.5,31\n",
        ",time,rtt_ms\n0,1779881008.0,30\n1,1779881008.5,31\n",
        "time,rtt_ms\n2026-05-27T07:23:28-0400,30\n2026-05-27T20:23:28.5+0900,31\n",
        "time,rtt_ms\n2026-05-27 11:23:28+00,30\n2026-05-27 13:23:28.5 +0200,31\n",
        "time,rtt_ms\n\"2026-05-27 11:23:28,000\",30\n\"2026-05-27 11:23:28,500\",31\n",
        "time,rtt_ms\n1779881008.0,30\ntime,rtt_ms\n1779881008.5,31\n",
    ] {
        assert_eq!(csv(text).trace, plain.trace, "{text}");
    }
}

#[test]
fn appended_measurements_of_irtt_follow_each_other() {
    let later = IRTT.replace("\"wall\": 17000000", "\"wall\": 17000009");
    let read = parse_irtt(format!("{IRTT}\n{later}").as_bytes(), &options()).unwrap();
    assert_eq!(read.account.to_string(), "4 answers, 2 lost, 15 min; 2 measurements");
    assert_eq!(events(&read), []);
}

fn report(protocol: &str, more: &str) -> String {
    let interval = |second: u32| {
        format!(
            "{{\"sum\": {{\"start\": {second}, \"end\": {}, \"bits_per_second\": 1e9, \"sender\": true}}}}",
            second + 1
        )
    };
    format!(
        "{{\"start\": {{\"connected\": [], \"timestamp\": {{\"timesecs\": 1700000000}}, \"test_start\": \
         {{\"protocol\": \"{protocol}\", \"reverse\": 0}}}}, \"intervals\": [{}, {}]{more}}}\n",
        interval(0),
        interval(1)
    )
}

#[test]
fn what_a_sender_of_udp_offered_is_no_rate() {
    let up = |text: &str| {
        let read = parse_iperf3_intervals(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok::<_, String>(read.intervals.iter().map(|one| one.up_bps.unwrap()).collect::<Vec<_>>())
    };
    assert_eq!(up(&report("TCP", "")).unwrap(), [1e9, 1e9]);
    let refused = up(&report("UDP", "")).unwrap_err();
    assert!(refused.contains("nothing in the file says what arrived"), "{refused}");
    let received = ", \"end\": {\"sum_received\": {\"bits_per_second\": 15.4e6}}";
    assert_eq!(up(&report("UDP", received)).unwrap(), [15.4e6, 15.4e6]);
    let lost = ", \"end\": {\"sum\": {\"bits_per_second\": 1e9, \"lost_percent\": 98}}";
    let arrived = up(&report("UDP", lost)).unwrap();
    assert!((arrived[0] - 2e7).abs() < 1.0, "{arrived:?}");
    let server = ", \"server_output_json\": {\"intervals\": [\
                  {\"sum\": {\"start\": 0, \"end\": 1, \"bits_per_second\": 1e7}},\
                  {\"sum\": {\"start\": 1, \"end\": 2, \"bits_per_second\": 2e7}}]}";
    assert_eq!(up(&report("UDP", server)).unwrap(), [1e7, 2e7]);
}

#[test]
fn reports_of_iperf3_are_read_in_any_number_and_as_events() {
    let later = report("TCP", "").replace("1700000000", "1700000100");
    let two = format!("{}{later}", report("TCP", ""));
    let read = parse_iperf3(two.as_bytes(), &options()).unwrap();
    assert_eq!(read.account.notes[0], "2 reports");
    assert_eq!(read.trace.frames.len(), 4);
    assert_eq!(read.trace.header.duration_ns, 102_000_000_000);
    let cut = &two[..two.len() - 30];
    assert_eq!(parse_iperf3_intervals(cut.as_bytes()).unwrap().intervals.len(), 2);
    let stream = "{\"event\": \"start\", \"data\": {\"timestamp\": {\"timesecs\": 1700000000}, \"test_start\": {}}}\n\
        {\"event\": \"interval\", \"data\": {\"sum\": {\"start\": 0, \"end\": 1, \"bits_per_second\": 2e7}}}\n\
        {\"event\": \"end\", \"data\": {}}\n";
    let read = parse_iperf3_intervals(stream.as_bytes()).unwrap();
    assert_eq!(read.intervals.len(), 1);
    assert_eq!(read.intervals[0].up_bps, Some(2e7));
}

#[test]
fn outages_that_are_known_are_those_of_the_path() {
    let row = |n: u64| format!("{},30\n", 1_700_000_000_000_000_000 + n * 50_000_000);
    let text: String = (0..200).map(row).collect();
    let begin_ns = 1_700_000_003_123_000_000 - 30_000_000;
    let given = MeasuredOptions { outages: vec![(begin_ns, begin_ns + 520_000_000)], ..options() };
    let read = parse_csv(text.as_bytes(), &given).unwrap();
    let expected = [(3_123, PathEventKind::Lost), (3_643, PathEventKind::Restored)];
    assert_eq!(events(&read), expected);
}

#[test]
fn lost_probes_keep_about_their_times() {
    let text = "sent_s,rtt_ms\n0,20\n1,timeout\n2,timeout\n3,20\n4,lost\n";
    let read = parse_round_trips(text.as_bytes(), "csv").unwrap();
    let plain: Vec<(i64, bool)> = read
        .outcomes
        .iter()
        .map(|Outcome { at_ns, rtt, .. }| (at_ns / 1_000_000, rtt.is_some()))
        .collect();
    assert_eq!(plain, [(20, true), (1_000, false), (2_000, false), (3_020, true), (4_000, false)]);
}

#[test]
fn damaged_lines_of_ping_are_passed_over_and_not_lost() {
    let log: String = (1..=40)
        .map(|sequence| match sequence {
            // The machine lost its power here, and the clock was set back there.
            11 => "64 bytes from a: icmp_seq=11 tt64 bytes from a: icmp_seq=12 ttl=56\n".to_owned(),
            12 => "64 bytes from a: icmp_seq=12 ttl=56 time=-4 ms\n".to_owned(),
            13 => "64 bytes from a: icmp_seq=13 ttl=56 time=0.000 ms\n".to_owned(),
            14 => String::new(),
            n => format!("64 bytes from a: icmp_seq={n} ttl=56 time=30 ms\n"),
        })
        .collect();
    let account = ping(&log).account.to_string();
    let expected = "36 answers, 1 lost, 40 s; 3 lines passed over, such as line 11: ";
    assert!(account.starts_with(expected), "{account}");
    let damaged = log.replace(" time=30 ms", "");
    let error = parse_ping(damaged.as_bytes(), &options()).unwrap_err().to_string();
    assert_eq!(error, "line 1: no time=… in it; is it truncated?");
}

#[test]
fn a_run_that_begins_with_a_loss_is_a_run_too() {
    let whole = |stamped: bool| -> String {
        let stamp = |at_s: u64| if stamped { format!("[{at_s}.03] ") } else { String::new() };
        let line = |begin_s: u64, n: u64| match n {
            1 => "no answer yet for icmp_seq=1\n".to_owned(),
            _ => format!("{}64 bytes from a: icmp_seq={n} ttl=5 time=30 ms\n", stamp(begin_s + n)),
        };
        let begins = [1_700_000_000, 1_700_000_060];
        begins.iter().flat_map(|begin_s| (1..=10).map(move |n| line(*begin_s, n))).collect()
    };
    for stamped in [true, false] {
        let account = ping(&whole(stamped)).account.to_string();
        assert!(account.starts_with("18 answers, 1 lost, "), "{account}");
        assert!(account.ends_with("2 runs of ping"), "{account}");
    }
}

#[test]
fn a_duplicate_begins_no_run_in_any_language() {
    for mark in ["(DUP!)", "(¡DUPLICADO!)", "（重复！）"] {
        let line = |n: u64, more: &str| format!("64 x a: icmp_seq={n} ttl=5 time=30 ms{more}\n");
        let log = line(1, "") + &line(2, "") + &line(2, mark) + &line(3, "");
        assert_eq!(ping(&log).account.to_string(), "3 answers, 0 lost, 3 s", "{mark}");
    }
}

#[test]
fn the_unit_of_a_round_trip_and_the_time_of_a_run_are_read_where_they_stand() {
    let delay = |time: &str| {
        let log = format!("64 bytes from a: icmp_seq=1 ttl=5 time={time}\n");
        ping(&log).trace.frames[0].delay.unwrap()
    };
    assert_eq!(delay("30 ms"), Duration::from_millis(15));
    assert_eq!(delay("30000 us"), Duration::from_millis(15));
    assert_eq!(delay("0.030 s"), Duration::from_millis(15));
    let span = |statistics: &str| {
        let line = |n: u64| format!("64 x a: icmp_seq={n} ttl=5 time=30 ms\n");
        let log: String = (1..=5).map(line).collect();
        ping(&format!("{log}\n--- a ---\n{statistics}\n")).account.span
    };
    assert_eq!(span("6 packets, 5 received, 16% loss, time 1000ms"), Duration::from_millis(1_200));
    assert_eq!(
        span("6 paket, 5 al\u{131}nd\u{131}, %16 kay\u{131}p, süre 1000ms"),
        Duration::from_millis(1_200)
    );
    assert_eq!(span("6 paket, 5 al\u{131}nd\u{131}, %16 kay\u{131}p"), Duration::from_secs(6));
}

#[test]
fn times_before_the_lines_of_windows_are_read() {
    let of = |stamps: [&str; 3], more: &str| {
        let [first, second, third] = stamps;
        let text = format!(
            "{more}{first}Pinging 192.0.2.1 with 32 bytes of data:\n\
             {first}Reply from 192.0.2.1: bytes=32 time=50ms TTL=56\n{second}Request timed out.\n\
             {third}Reply from 192.0.2.1: bytes=32 time=50ms TTL=56\n{third}\n\
             {third}Ping statistics for 192.0.2.1:\n"
        );
        let read = ping(&text);
        let account = read.account.to_string();
        assert!(account.starts_with("2 answers, 1 lost, 6 s"), "{text}{account}");
        read.trace.header.start.map(|start| start.to_string())
    };
    let expected = Some("2026-05-27T11:23:27.950Z".to_owned());
    for (day, half) in [("27.05.2026 ", ""), ("5/27/2026 ", " AM"), ("2026-05-27 ", "")] {
        let stamp = |time: &str| format!("{day}{time}{half} - ");
        let stamps = ["11:23:28", "11:23:30", "11:23:32"].map(stamp);
        assert_eq!(of(stamps.each_ref().map(String::as_str), ""), expected, "{stamps:?}");
    }
    // The day and the month cannot be told apart: the times count without the date.
    let unclear = ["05/06/2026 11:23:28 ", "05/06/2026 11:23:30 ", "05/06/2026 11:23:32 "];
    assert_eq!(of(unclear, "C:\\Users\\a>ping 192.0.2.1\n\n"), None);
}

pub const ATLAS: &str = r#"[{"af":4,"dst_addr":"192.0.2.1","dst_name":"a","prb_id":7,"msm_id":1,"timestamp":1700000000,
"type":"ping","sent":3,"result":[{"rtt":30.5},{"rtt":31},{"x":"*"}]},
{"af":4,"dst_addr":"192.0.2.1","dst_name":"a","prb_id":7,"timestamp":1700000480,"type":"ping",
"result":[{"rtt":30},{"dup":1,"rtt":31},{"rtt":30},{"rtt":30}]},
{"af":4,"dst_addr":"192.0.2.1","dst_name":"a","prb_id":7,"timestamp":1700000240,"type":"ping",
"result":[{"x":"*"},{"error":"sendto failed: Network is unreachable"},{"x":"*"}]},
{"af":4,"dst_name":"a","dst_addr":"192.0.2.1","prb_id":7,"timestamp":1700000720,"type":"ping",
"result":[{"error":"dns resolution failed"}]}]"#;

fn atlas(text: &str) -> Result<Imported, String> {
    parse_atlas(text.as_bytes(), &options()).map_err(|error| error.to_string())
}

#[test]
fn pings_of_atlas_are_read_as_an_array_and_by_line() {
    let read = atlas(ATLAS).unwrap();
    let account = read.account.to_string();
    assert_eq!(
        account,
        "5 answers, 4 lost, 8.1 min; 4 results, 1 of them without packets"
            .replace(", 1 of", "; 1 of")
    );
    assert_eq!(start(&read), "2023-11-14T22:13:20Z");
    // The last packet of the first result and all of the second: the path is down until the third.
    assert_eq!(events(&read), [(2_015, PathEventKind::Lost), (480_000, PathEventKind::Restored)]);
    let lines = ATLAS.replace('\n', "").replace("},{\"af\"", "}\n{\"af\"");
    let lines = lines.trim_start_matches('[').trim_end_matches(']');
    assert_eq!(atlas(lines).unwrap(), read);
    let cut = &lines[..lines.rfind("dns").unwrap()];
    assert_eq!(atlas(cut).unwrap().account.notes, ["its last document is cut off", "3 results"]);
    let lost: Vec<i64> = parse_round_trips(ATLAS.as_bytes(), "atlas")
        .unwrap()
        .outcomes
        .iter()
        .filter(|one| one.rtt.is_none())
        .map(|one| one.at_ns / 1_000_000_000 - 1_700_000_000)
        .collect();
    assert!(lost.iter().all(|at_s| (2..=242).contains(at_s)) && lost.len() == 4, "{lost:?}");
}

#[test]
fn losses_at_the_end_of_a_file_of_atlas_are_at_their_times() {
    let result = |at_s: u32, packets: &str| {
        format!(
            "{{\"type\":\"ping\",\"prb_id\":7,\"dst_name\":\"a\",\"timestamp\":{at_s},\"result\":[{packets}]}}\n"
        )
    };
    let failed = r#"{"error":"sendto failed: Network is unreachable"}"#;
    let text = [
        result(1_700_000_000, r#"{"rtt":30},{"rtt":30},{"rtt":30}"#),
        result(1_700_000_240, r#"{"x":"*"},{"x":"*"},{"x":"*"}"#),
        result(1_700_000_480, &[failed; 3].join(",")),
    ]
    .concat();
    let read = atlas(&text).unwrap();
    assert_eq!(read.account.to_string(), "3 answers, 6 lost, 8.1 min; 3 results");
    assert_eq!(events(&read), [(240_015, PathEventKind::Lost)]);
    assert_eq!(read.trace.header.duration_ns, 483_000_000_000);
    let outcomes = parse_round_trips(text.as_bytes(), "atlas").unwrap().outcomes;
    let lost = outcomes.iter().filter(|one| one.rtt.is_none());
    let times = lost.map(|one| one.at_ns / 1_000_000_000 - 1_700_000_000);
    assert!(times.clone().all(|at_s| (240..=482).contains(&at_s)) && times.count() == 6);
}

#[test]
fn a_file_of_atlas_is_of_one_probe_and_one_target() {
    for (old, new, what) in [
        (
            "\"prb_id\":7,\"timestamp\":1700000480",
            "\"prb_id\":8,\"timestamp\":1700000480",
            "?probe_ids=7",
        ),
        (
            "\"dst_name\":\"a\",\"prb_id\":7,\"timestamp\":1700000480",
            "\"dst_name\":\"b\",\"prb_id\":7,\"timestamp\":1700000480",
            "to b (IPv4)",
        ),
        ("\"type\":\"ping\",\"sent\"", "\"type\":\"traceroute\",\"sent\"", "skyhop dissect reads"),
        ("\"rtt\":30.5", "\"rtt\":-1", "not between 0 and 60000 ms"),
        ("\"timestamp\":1700000000", "\"timestamp\":-5", "not between 1970 and 2100"),
        ("\"prb_id\":7,\"msm_id\"", "\"msm_id\"", "is not a result of RIPE Atlas: missing field"),
    ] {
        let error = atlas(&ATLAS.replace(old, new)).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    assert!(atlas("[]").unwrap_err().contains("no result"));
}

/// Report of iperf3 with its settings and intervals.
fn iperf3(begin_s: u32, settings: &str, intervals: &str) -> String {
    format!(
        "{{\"start\": {{\"timestamp\": {{\"timesecs\": {begin_s}}}, \"test_start\": {{{settings}}}}}, \
         \"intervals\": [{intervals}]}}\n"
    )
}

/// Interval of an iperf3 report.
fn interval(begin: f64, end: f64, more: &str) -> String {
    format!("{{\"sum\": {{\"start\": {begin}, \"end\": {end}, {more}}}}}")
}

fn begins_s(text: &str) -> Vec<f64> {
    let read = parse_iperf3_intervals(text.as_bytes()).unwrap();
    read.intervals.iter().map(|one| one.begin_ns as f64 / 1e9 - 1.7e9).collect()
}

#[test]
fn intervals_of_iperf3_begin_after_the_omitted_ones_and_have_a_length() {
    let rate = "\"bits_per_second\": 1e7";
    let omitted = format!("{rate}, \"omitted\": true");
    let rows = [interval(0.0, 1.0, &omitted), interval(1.0, 2.0, &omitted)].join(",");
    let later = [interval(0.0, 1.0, rate), interval(1.0, 2.0, rate)].join(",");
    // The clock of iperf3 begins again at 0.
    assert_eq!(begins_s(&iperf3(1_700_000_000, "", &format!("{rows},{later}"))), [2.0, 3.0]);
    let goes_on = interval(2.0, 3.0, rate);
    assert_eq!(begins_s(&iperf3(1_700_000_000, "", &format!("{rows},{goes_on}"))), [2.0]);
    // A last interval of microseconds, one without a length, and one without a sum.
    let short = [
        interval(2.0, 2.000_1, "\"bits_per_second\": 9e9"),
        interval(2.0, 2.0, "\"bits_per_second\": null"),
        "{\"streams\": []}".to_owned(),
    ];
    let text = iperf3(1_700_000_000, "", &format!("{later},{}", short.join(",")));
    assert_eq!(begins_s(&text), [0.0, 1.0]);
    let notes = parse_iperf3_intervals(text.as_bytes()).unwrap().account.notes;
    assert_eq!(notes, ["1 too short for a rate"]);
}

#[test]
fn a_test_that_failed_leaves_the_other_reports() {
    let good = iperf3(1_700_000_000, "", &interval(0.0, 1.0, "\"bits_per_second\": 1e7"));
    let failed = "{\"start\": {}, \"intervals\": [], \"error\": \"unable to connect\"}\n";
    let read = parse_iperf3_intervals(format!("{good}{failed}").as_bytes()).unwrap();
    assert_eq!(read.account.notes, ["2 reports", "1 of them did not measure: unable to connect"]);
    let array = format!("[{},{}]", good.trim_end(), failed.trim_end());
    assert_eq!(parse_iperf3_intervals(array.as_bytes()).unwrap(), read);
    let error = parse_iperf3_intervals(failed.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "iperf3 did not measure: unable to connect");
}

#[test]
fn two_tests_at_the_same_time_are_no_rate_of_the_link() {
    let rows: Vec<String> = (0..10)
        .map(|n| interval(f64::from(n), f64::from(n) + 1.0, "\"bits_per_second\": 1e7"))
        .collect();
    let test = |begin_s, settings| iperf3(begin_s, settings, &rows.join(","));
    let both = |settings| {
        let text = test(1_700_000_000, "\"reverse\": 0") + &test(1_700_000_003, settings);
        parse_iperf3_intervals(text.as_bytes()).map(|read| read.intervals.len())
    };
    let error = both("\"reverse\": 0").unwrap_err().to_string();
    assert!(error.contains("one direction at the same time"), "{error}");
    assert_eq!(both("\"reverse\": 1").unwrap(), 20);
    let apart = test(1_700_000_000, "") + &test(1_700_003_600, "");
    let read = parse_iperf3(apart.as_bytes(), &options()).unwrap();
    assert!(read.account.to_string().contains("between two reports the last rate holds"));
}

#[test]
fn a_limited_rate_is_said_to_be_one() {
    let row = interval(0.0, 1.0, "\"bits_per_second\": 1e7, \"sender\": false");
    let note = |settings: &str, end: &str| {
        let text = iperf3(1_700_000_000, settings, &row).replace("]}\n", &format!("]{end}}}\n"));
        parse_iperf3_intervals(text.as_bytes()).unwrap().account.notes.join("; ")
    };
    let tcp = "\"protocol\": \"TCP\", \"num_streams\": 4, \"target_bitrate\": 2500000";
    assert_eq!(note(tcp, ""), "limited to 10 Mbit/s by -b: the link may carry more");
    let udp = "\"protocol\": \"UDP\", \"reverse\": 1, \"target_bitrate\": 10000000";
    let lost = |percent: f64| {
        format!(", \"end\": {{\"sum\": {{\"bits_per_second\": 1e7, \"lost_percent\": {percent}}}}}")
    };
    assert!(note(udp, &lost(0.0)).starts_with("limited to 10 Mbit/s"));
    assert_eq!(note(udp, &lost(20.0)), "");
}

#[test]
fn the_two_directions_of_a_bidirectional_udp_test_have_their_own_totals() {
    let row = "{\"sum\": {\"start\": 0, \"end\": 1, \"bits_per_second\": 5e7, \"sender\": true}, \
               \"sum_bidir_reverse\": {\"start\": 0, \"end\": 1, \"bits_per_second\": 9e7, \"sender\": true}}";
    let end = ", \"end\": {\"sum_received\": {\"bits_per_second\": 1e7}, \
               \"sum_bidir_reverse\": {\"bits_per_second\": 9e7, \"lost_percent\": -5}}";
    let text = iperf3(1_700_000_000, "\"protocol\": \"UDP\"", row);
    let text = text.replace("]}\n", &format!("]{end}}}\n"));
    let read = parse_iperf3_intervals(text.as_bytes()).unwrap();
    assert_eq!((read.intervals[0].up_bps, read.intervals[0].down_bps), (Some(1e7), Some(9e7)));
}

//! Parsing of LeoEM logs, and error messages about damaged ones.

use skyhop_model::PathEventKind;
use skyhop_path::import::{LeoemLogOptions, parse_leoem_log};
use skyhop_path::{BetweenFrames, OutageModel, PathTrace};
use skyhop_units::{Duration, Instant};

pub const LOG: &str = "\
1$NULL
2$[-1, 7, 8, 1590, 9, -2]$6$[0.001, 0.002, 0.003, 0.004, 0.0050000004]$0.0150000004
3$[-1, 7, 8, 1590, 9, -2]$6$[0.001, 0.002, 0.003, 0.004, 0.0050000004]$0.0150000004
4$[-1, 6, 8, 1591, 9, -2]$6$[0.0015, 0.002, 0.003, 0.004, 0.005]$0.0155
5$[-1, 9, 11, 12, -2]$5$[0.001, 0.002, 0.002, 0.001]$0.006
6$NULL
7$[-1, 9, -2]$3$[0.001, 0.002]$0.003
";

fn parse(log: &str) -> Result<PathTrace, String> {
    parse_leoem_log(log.as_bytes(), &LeoemLogOptions::default()).map_err(|error| error.to_string())
}

fn events(trace: &PathTrace, frame: usize) -> Vec<(PathEventKind, Option<u16>, u64)> {
    let events = trace.frames[frame].events.iter();
    events.map(|event| (event.kind, event.hop, event.outage.as_micros())).collect()
}

#[test]
fn lines_become_frames_with_rounded_delays() {
    let trace = parse(LOG).unwrap();
    assert_eq!(trace.frames.len(), 7);
    assert_eq!(trace.header.between_frames, BetweenFrames::Step);
    assert_eq!((trace.header.duration_ns, trace.header.step_ns), (7_000_000_000, 1_000_000_000));
    assert_eq!(trace.header.relay.as_deref(), Some("bent-pipe"));
    let frame = &trace.frames[1];
    assert_eq!(frame.at, Instant::START + Duration::from_secs(1));
    assert_eq!(frame.nodes, [-1, 7, 8, 1590, 9, -2]);
    assert_eq!(frame.hop_delays[4], Duration::from_micros(5_000));
    assert_eq!(frame.delay, Some(Duration::from_micros(15_000)));
    assert_eq!(frame.delay, frame.delay_back);
    assert_eq!(trace.frames[0].delay, None);
}

#[test]
fn events_are_those_of_leoems_emulator() {
    use PathEventKind::{End, Intermediate, Lost, Restored};
    let trace = parse(LOG).unwrap();
    assert_eq!(events(&trace, 0), [(Lost, None, 0)]);
    // The outage is that of the slower end: 3 * 5 ms.
    assert_eq!(events(&trace, 1), [(Restored, None, 15_000)]);
    assert_eq!(events(&trace, 2), []);
    // New first satellite, 3 * (1 + 1.5) ms; the old route is joined at 6 -> 8, left at 8 -> 1591, joined again at
    // 1591 -> 9.
    // LeoEM takes the interfaces of a broken link down and up, which takes 25 ms.
    let broken = |hop| (Intermediate, Some(hop), 25_000);
    assert_eq!(events(&trace, 3), [(End, Some(0), 7_500), broken(1), broken(2), broken(3)]);
    // The old route is left at 9 -> 11; as the first satellite was the old path's last, LeoEM takes the last
    // link of the middle down, too.
    let expected = [(End, Some(0), 7_500), broken(1), broken(2), (End, Some(3), 18_000)];
    assert_eq!(events(&trace, 4), expected);
    assert_eq!(events(&trace, 5), [(Lost, None, 0)]);
    assert_eq!(events(&trace, 6), [(Restored, None, 6_000)]);
}

#[test]
fn outages_follow_the_model_that_is_asked_for() {
    for (outage, expected_us) in
        [(OutageModel::None, 0), (OutageModel::Constant(Duration::from_millis(80)), 80_000)]
    {
        let options = LeoemLogOptions { outage, ..LeoemLogOptions::default() };
        let trace = parse_leoem_log(LOG.as_bytes(), &options).unwrap();
        assert_eq!(events(&trace, 1), [(PathEventKind::Restored, None, expected_us)]);
        assert_eq!(events(&trace, 3)[0], (PathEventKind::End, Some(0), expected_us));
    }
    let intermediate_outage = Duration::from_millis(7);
    let options = LeoemLogOptions { intermediate_outage, ..LeoemLogOptions::default() };
    let trace = parse_leoem_log(LOG.as_bytes(), &options).unwrap();
    assert_eq!(events(&trace, 3)[1], (PathEventKind::Intermediate, Some(1), 7_000));
}

#[test]
fn a_log_that_is_cut_anywhere_in_its_last_line_names_that_line() {
    let start = LOG.find("5$").unwrap();
    let end = LOG.find("\n6$").unwrap();
    for cut in start + 1..end - 1 {
        let error = parse(&LOG[..cut]).expect_err(&LOG[start..cut]);
        assert!(error.contains("line 5"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn damaged_logs_are_refused_with_the_line() {
    let cases = [
        ("3$[-1", "4$[-1", "line 3: cycle 4, but cycles are consecutive: expected 3"),
        ("2$[-1, 7", "2$[-3, 7", "line 2: the nodes do not go from -1 to -2"),
        ("]$6$[0.0015", "]$7$[0.0015", "line 4: 6 nodes and 5 delays for a node count of 7"),
        ("$0.0155", "$0.0157", "line 4: the delays add up to"),
        ("$0.0155", "$NaN", "line 4: the delays add up to"),
        ("[0.0015", "[-0.0015", "line 4: a delay of -0.0015 s"),
        ("[0.0015", "[NaN", "line 4: a delay of NaN s"),
        ("6$NULL", "6$NOLL", "line 6: 2 fields"),
        ("6$NULL", "", "line 6: the cycle number has \"\""),
        ("-1, 9, 11", "-1, 9, x", "line 5: the node list has \"x\""),
        ("-1, 9, 11", "-1, 9, -7", "line 5: a node between the ends is negative"),
    ];
    for (part, replacement, expected) in cases {
        assert!(LOG.contains(part));
        let error = parse(&LOG.replace(part, replacement)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn logs_without_a_path_are_refused() {
    assert!(parse("").unwrap_err().contains("no frames"));
    assert!(parse("1$NULL\n2$NULL\n").unwrap_err().contains("never a path"));
    assert!(parse("<html>\n").unwrap_err().contains("line 1"));
    assert!(
        parse(&"1".repeat(3_000_000))
            .unwrap_err()
            .contains("line 1: it is longer than 100000 bytes")
    );
}

#[test]
fn bytes_that_are_no_text_are_refused_with_the_line() {
    let error = parse_leoem_log(&b"1$NULL\n\xff\xfe\n"[..], &LeoemLogOptions::default());
    assert!(error.unwrap_err().to_string().contains("line 2"));
}

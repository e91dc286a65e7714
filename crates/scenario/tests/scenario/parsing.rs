//! Scenario files: defaults as documented, and errors that name file, key and remedy in one line.

use std::ops::ControlFlow;

use serde_json::json;
use skyhop_app::{Probe, TcpOptions};
use skyhop_experiment::Experiment;
use skyhop_model::{BufferSizes, LiveDevice, Profile};
use skyhop_scenario::types::{FixedPath, FlowKind, PathKind, TcpFlowKeys};
use skyhop_scenario::{NamedScenario, parse_scenario, scenario_from_json};
use skyhop_units::{Bytes, Duration, QueueLimit, Rate};

const MINIMAL: &str = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n";

fn error(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let message = parse_scenario(text, "x.toml", &sets).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    message
}

fn with(extra: &str) -> String {
    format!("{MINIMAL}{extra}")
}

/// Wrong names of every kind that a scenario has: each error says what the user may have meant.
#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    let text = "[path]\nfrom = \"San Diego\"\nto = \"New York\"\n[[flow]]\n";
    for (key_value, meant) in [
        ("path.relay=ISL", "path.relay: unknown variant `ISL` (did you mean isl?), expected"),
        ("path.relay=bentpipe", "(did you mean bent-pipe?)"),
        ("path.kind=Constellation", "(did you mean constellation?)"),
        ("path.compat=Hypatia", "(did you mean hypatia?)"),
        ("path.gateway=x", "unknown field `gateway` (did you mean gateways?)"),
        ("link.qdisc=fqcodel", "no qdisc \"fqcodel\" (did you mean fq_codel?);"),
        ("link.qdisc.kind=FQ_CODEL", "(did you mean fq_codel?)"),
        ("link.rate=20mbps", "the unit \"mbps\" (did you mean Mbps?)"),
        ("link.queue=20KB", "the unit \"KB\" (did you mean kB?)"),
        ("tcp.profile=linux-6", "(did you mean linux-6.12 or linux-6.18?)"),
        ("flow.0.ccc=bbr", "unknown field `ccc` (did you mean cc?)"),
        ("flow.0.kind=Probe", "(did you mean probe?)"),
        ("flow.0.tcpp.sack=false", "its congestion control (cubic) (did you mean tcp?)"),
        ("flow.0.app.kind=Page", "(did you mean page?)"),
        ("flow.0.dscp=EF", "(did you mean ef?)"),
        ("flow.0.cc=skyhop:Orca.toml", "no card Orca (did you mean orca?)"),
        ("flow.0.via=[\"Path\"]", "no link \"Path\" (did you mean path?)"),
        ("flows.0.cc=bbr", "unknown field `flows` (did you mean flow?)"),
        ("signal.source=Path", "(did you mean path?)"),
        ("live.device=TUN", "(did you mean tun?)"),
    ] {
        let error = error(text, &[key_value]);
        assert!(error.contains(meant), "{key_value}: {error}");
    }
}

#[test]
fn an_intermediate_outage_is_leoems_with_its_compat_and_what_is_given_stays() {
    for (keys, expected) in [
        ("compat = \"leoem\"", Some(25)),
        ("compat = \"leoem\"\nintermediate_outage = \"0 s\"", Some(0)),
        ("compat = \"hypatia\"", None),
        ("intermediate_outage = \"7 ms\"", Some(7)),
    ] {
        let text = format!("[path]\nfrom = \"San Diego\"\nto = \"New York\"\n{keys}\n[[flow]]\n");
        let first = parse_scenario(&text, "x.toml", &[]).unwrap().scenario;
        let again = scenario_from_json(&first.to_json().to_string(), "y", &[]).unwrap().scenario;
        for scenario in [first, again] {
            let PathKind::Constellation(path) = &scenario.path.as_ref().unwrap().kind else {
                panic!("{keys}")
            };
            assert_eq!(path.intermediate_outage, expected.map(Duration::from_millis), "{keys}");
        }
    }
}

#[test]
fn what_is_not_given_has_the_documented_default() {
    let text =
        "[path]\nfrom = \"San Diego\"\nto = \"New York\"\n[[flow]]\n[[flow]]\nkind = \"probe\"";
    let scenario = parse_scenario(text, "x.toml", &[]).unwrap().scenario;
    let PathKind::Constellation(path) = scenario.path.clone().unwrap().kind else {
        panic!("{:?}", scenario.path)
    };
    assert_eq!(path.constellation, "starlink-shell1");
    assert_eq!(path.handover, None);
    assert_eq!(path.outage.as_deref(), Some("leoem"));
    assert_eq!(path.intermediate_outage, None);
    assert_eq!(path.gateways, "starlink-gateways");
    assert_eq!(path.start, None);
    assert_eq!(path.step, Duration::from_secs(1));
    let link = scenario.link.keys.values();
    assert_eq!(link.rate, Rate::from_bits_per_second(150_000_000));
    assert_eq!(link.queue, QueueLimit::Bdp(1.0));
    assert_eq!(link.qdisc.name(), "fifo");
    let tcp = TcpFlowKeys { cc: "cubic".to_owned(), ..TcpFlowKeys::default() };
    assert_eq!(scenario.flow[0].kind, FlowKind::Tcp(tcp));
    let probe = Probe { interval: Duration::from_millis(10), size: Bytes::new(64) };
    assert_eq!(scenario.flow[1].kind, FlowKind::Probe(probe));
    assert_eq!(scenario.run.duration, Duration::from_secs(60));
    assert_eq!(scenario.run.sample, Duration::from_millis(100));
    assert_eq!(scenario.run.seed, 1);
    assert_eq!(scenario.live.device, LiveDevice::Auto);
}

#[test]
fn wrong_keys_and_values_are_named() {
    for (extra, expected) in [
        (
            "[link]\nrat = \"1 Mbit/s\"",
            "x.toml: link.rat: unknown field `rat` (did you mean rate?), expected one of",
        ),
        ("[link]\nrate = \"-3 Mbit/s\"", "x.toml: link.rate: \"-3 Mbit/s\" is out of range"),
        ("[link]\nrate = \"3 parsec\"", "x.toml: link.rate: \"3 parsec\" has the unit \"parsec\""),
        ("[link]\nrate = \"0 bit/s\"", "x.toml: link.rate: is 0"),
        (
            "[link]\nrate = 150",
            "x.toml: link.rate: invalid type: integer `150`, expected text with a unit",
        ),
        ("[link]\nloss = \"200 %\"", "x.toml: link.loss: \"200 %\" is out of range"),
        (
            "[link]\nloss = { kind = \"gilbert-elliott\", p = \"1 %\" }",
            "x.toml: link.loss: gilbert-elliott needs p and r, or good and bad; give one",
        ),
        (
            "[link]\nloss = { kind = \"gilbert-eliot\", good = \"1 s\", bad = \"1 s\" }",
            "x.toml: link.loss.kind: unknown variant `gilbert-eliot`",
        ),
        (
            "[[flow]]\n[[flow]]\nfrom = \"there\"",
            "x.toml: flow.1.from: unknown variant `there`, expected `from` or `to`",
        ),
        ("[[flow]]\nstart = \"2 min\"", "x.toml: flow.0.start: is 120 s, but the run ends at 60 s"),
        ("[[flow]]\nstart = \"5 s\"\nstop = \"5 s\"", "x.toml: flow.0.stop: is not after"),
        ("[[flow]]\nstop = \"5 s\"\nbytes = \"1 MB\"", "x.toml: flow.0: has both stop and bytes"),
        ("[[flow]]\nbbr.gain = 2", "x.toml: flow.0.bbr: is neither a key of a flow nor"),
        ("[[flow]]\nkind = \"probe\"\nsize = \"9 kB\"", "x.toml: flow.0.size: is 9 kB"),
        (
            "[[flow]]\napp = { kind = \"probe\", size = \"100 B\" }",
            "x.toml: flow.0.app.kind: is \"probe\", which does not run over TCP; write kind = \"probe\" in place of \
             `app`, with its keys next to it in the flow",
        ),
        ("[[change]]\nat = \"1 s\"", "x.toml: change.0: changes nothing"),
        ("[run]\nduration = \"0 s\"", "x.toml: run.duration: is too short"),
        (
            "[signal]\nsource = \"path\"\nelements = \"old.tle\"",
            "x.toml: signal.elements: is for source = \"forecast\" alone",
        ),
        (
            "[signal]\nsource = \"path\"\nerror = \"some\"",
            "x.toml: signal.error: \"some\" is not a timing error",
        ),
        (
            "[signal]\nsource = \"path\"\nintermediate.error = \"some\"",
            "x.toml: signal.intermediate.error: \"some\" is not a timing error",
        ),
        (
            "[signal]\nsource = \"path\"\nend.latency = \"1 s\"",
            "x.toml: signal.end.latency: unknown field `latency`, expected `lead` or `error`",
        ),
        (
            "[signal]\nsource = \"schedule\"\nend.error = \"none\"",
            "x.toml: signal.end: is for source = \"path\" and \"forecast\": a grid does not tell",
        ),
        (
            "[signal]\nsource = \"blind\"\nlatency = \"15 s\"",
            "x.toml: signal.latency: is as long as the period of 15 s",
        ),
        (
            "[signal]\nsource = \"blind\"\nperiod = \"200 ms\"",
            "x.toml: signal.period: is 200 ms; expected at least 1 s",
        ),
        ("[signal]\nsource = \"schedule\"\nperiod = \"0 s\"", "x.toml: signal.period: is 0 s"),
        ("[[change]]\nrtt = \"1 ms\"", "x.toml: change.0: missing field `at`"),
        (
            "[[flow]]\ninterval = \"1 s\"",
            "x.toml: flow.0.interval: belongs to a flow of kind \"probe\"",
        ),
        ("[[flow]]\nkind = \"probe\"\ninterval = \"1 ns\"", "x.toml: flow.0.interval: is 1 ns"),
        (
            "[live]\ndevice = \"tap\"",
            "x.toml: live.device: unknown variant `tap`, expected one of `auto`, `tun`, `packet`",
        ),
        (
            "[linux]\nlink = \"netem\"",
            "x.toml: linux.link: unknown variant `netem`, expected one of `auto`, `skyhop`, `tc`",
        ),
        ("[tcp]\nhz = 60", "x.toml: tcp.hz: is 60; expected 100, 250, 300 or 1000"),
        ("[tcp]\ninitial_cwnd = 0", "x.toml: tcp.initial_cwnd: is 0; expected 1 to 10000"),
        ("[tcp]\nprofile = \"linux-2.4\"", "x.toml: tcp.profile: unknown variant `linux-2.4`"),
        ("[tcp]\nrmem.least = \"1 MB\"", "x.toml: tcp.rmem.least: unknown field `least`"),
        (
            "[tcp]\nrmem.max = \"100 kB\"",
            "x.toml: tcp.rmem.max: is 100 kB, but the buffer has 131.072 kB",
        ),
        ("[tcp]\nwmem.initial = \"1 kB\"", "x.toml: tcp.wmem.initial: is 1 kB; expected at least"),
        (
            "[[flow]]\ntcp.cwnd = 3",
            "x.toml: flow.0.tcp.cwnd: unknown field `cwnd`, expected one of",
        ),
        (
            "[tcp]\nrmem.max = \"1 MB\"\n[[flow]]\ntcp.rmem.initial = \"2 MB\"",
            "x.toml: flow.0.tcp.rmem.max: is 1 MB, but the buffer has 2 MB at first",
        ),
        ("[flow]\ncc = \"bbr\"", "x.toml: flow: expected [[flow]], one for each flow"),
        (
            "[signal]\nsource = \"schedule\"\nerror = \"-15 s\"",
            "x.toml: signal.error: is as long as the period of 15 s",
        ),
        ("[live]\nqueue = 1", "x.toml: live.queue: unknown field `queue`, expected `device`"),
        ("[swim]\n", "x.toml: swim: unknown field `swim`"),
    ] {
        let message = error(&with(extra), &[]);
        assert!(message.starts_with(expected), "{extra}: {message}");
    }
}

#[test]
fn keys_of_another_kind_of_path_are_refused() {
    let message = error(&with("relay = \"isl\""), &[]);
    assert!(message.starts_with(
        "x.toml: path.relay: does not belong to a path of kind \"fixed\" but of \"constellation\"; its keys are rtt,"
    ));
    assert_eq!(
        error("[path]\nfile = \"x.parquet\"", &[]),
        "x.toml: path.file: belongs to a path of kind \"trace\", but kind is missing; add kind = \"trace\" (its \
         default is \"constellation\")"
    );
    assert!(error("[path]\nrtt = \"50 ms\"", &[]).contains("add kind = \"fixed\" (its default"));
    assert!(error("[path]\nkind = \"fixed\"", &[]).starts_with("x.toml: path.rtt: is missing"));
    assert!(error("[path]\nfrom = \"Rome\"", &[]).starts_with("x.toml: path.to: is missing"));
    assert!(error("[path]\nkind = \"trace\"", &[]).starts_with("x.toml: path.file: is missing"));
}

#[test]
fn text_that_is_no_toml_is_named_with_its_line() {
    assert!(error("[path]\nkind = fixed\n", &[]).starts_with("x.toml: line 2: not TOML: "));
}

#[test]
fn parameters_of_the_congestion_control_are_kept() {
    let named = parse_scenario(&with("[[flow]]\ncubic.beta = 0.7"), "x.toml", &[]).unwrap();
    assert_eq!(named.scenario.flow[0].parameters["cubic"]["beta"], 0.7);
}

#[test]
fn sets_override_and_add_keys() {
    let text = with("[[flow]]\ncc = \"cubic\"");
    let sets = ["flow.0.cc=bbr", "link.rate=10 Mbit/s", "run.seed=7", "path.rtt=\"60 ms\""];
    let sets: Vec<String> = sets.map(str::to_owned).to_vec();
    let scenario = parse_scenario(&text, "x.toml", &sets).unwrap().scenario;
    let tcp = TcpFlowKeys { cc: "bbr".to_owned(), ..TcpFlowKeys::default() };
    assert_eq!(scenario.flow[0].kind, FlowKind::Tcp(tcp));
    assert_eq!(scenario.link.keys.rate, Some(Rate::from_bits_per_second(10_000_000)));
    assert_eq!(scenario.run.seed, 7);
    let rtt = Some(Duration::from_millis(60));
    assert_eq!(
        scenario.path.unwrap().kind,
        PathKind::Fixed(FixedPath { rtt, ..FixedPath::default() })
    );
}

#[test]
fn a_scenario_is_written_with_a_live_section_only_where_it_says_something() {
    let written = |device: &str| {
        let sets = [format!("live.device={device}")];
        let scenario = parse_scenario(MINIMAL, "x.toml", &sets).unwrap().scenario;
        scenario.to_json()
    };
    assert_eq!(written("packet")["live"]["device"], "packet");
    assert_eq!(written("auto").get("live"), None);
    assert_eq!(written("auto").get("linux"), None);
}

#[test]
fn wrong_sets_are_named() {
    let text = with("[[flow]]");
    assert!(error(&text, &["flow.0.cc"]).starts_with("--set flow.0.cc: expected KEY=VALUE"));
    assert!(error(&text, &["flow.3.cc=bbr"]).contains("there is no entry \"3\""));
    assert!(error(&text, &["flow.cc=bbr"]).contains("counted from 0: write 0.cc for the first"));
    assert!(error(MINIMAL, &["flow.0.cc=bbr"]).ends_with("the scenario has no [[flow]] to change"));
    assert!(error(&text, &["path.rtt.x=1"]).contains("\"rtt\" is string, not a section"));
    assert!(error(&text, &["link.speed=1"]).starts_with("x.toml: link.speed: unknown field"));
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let late = error(&with("[[change]]\nat = \"60 s\"\nrtt = \"1 ms\""), &[]);
    assert!(late.starts_with("x.toml: change.0.at: is not before the run's end"), "{late}");
    let many = error(&with("[[flow]]\ncount = 4000000000"), &[]);
    assert!(
        many.starts_with("x.toml: flow.0.count: is 4000000000; expected at most 10000"),
        "{many}"
    );
}

const LAYERED: &str = "[tcp]\nhz = 250\nrmem = { max = \"6 MB\" }\nnodelay = true\n\
                       [[flow]]\n[[flow]]\n\
                       tcp = { hz = 100, rmem = { initial = \"1 MB\" }, profile = \"linux-4.15\" }\n";

fn options(text: &str, sets: &[&str]) -> Vec<TcpOptions> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let named = parse_scenario(text, "x.toml", &sets).unwrap();
    let experiment = experiment_of(&named);
    experiment.flows.iter().map(|flow| *flow.tcp_options().unwrap()).collect()
}

fn experiment_of(named: &NamedScenario) -> Experiment {
    let no_places = |name: &str| Err(format!("no place {name}"));
    named.experiment(&no_places, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_flows_keys_win_over_those_of_all() {
    let bytes = Bytes::new;
    let all = TcpOptions {
        hz: 250,
        rmem: BufferSizes { initial: bytes(131_072), max: bytes(6_000_000) },
        nodelay: true,
        ..TcpOptions::default()
    };
    let own = TcpOptions {
        hz: 100,
        rmem: BufferSizes { initial: bytes(1_000_000), ..all.rmem },
        profile: Profile::Linux4_15,
        ..all
    };
    assert_eq!(options(&with(LAYERED), &[]), [all, own]);
    let sets = ["tcp.initial_cwnd=30", "flow.1.tcp.rmem.max=9 MB", "flow.1.tcp.hz=1000"];
    let all = TcpOptions { initial_cwnd: 30, ..all };
    let rmem = BufferSizes { max: bytes(9_000_000), ..own.rmem };
    assert_eq!(
        options(&with(LAYERED), &sets),
        [all, TcpOptions { initial_cwnd: 30, hz: 1000, rmem, ..own }]
    );
}

#[test]
fn the_older_linux_begins_with_its_own_buffer() {
    let text = with("[[flow]]\ntcp = { profile = \"linux-4.15\" }");
    assert_eq!(options(&text, &[])[0].rmem.initial, Bytes::new(87_380));
    // The same holds if [tcp] is written out in full, with the usual profile's buffer.
    let named = parse_scenario(&text, "x.toml", &["tcp.hz=100".to_owned()]).unwrap();
    let again = scenario_from_json(&named.scenario.to_json().to_string(), "y", &[]).unwrap();
    assert_eq!(experiment_of(&again).flows, experiment_of(&named).flows);
    assert_eq!(
        experiment_of(&again).flows[0].tcp_options().unwrap().rmem.initial,
        Bytes::new(87_380)
    );
}

#[test]
fn what_is_written_of_tcp_reads_the_same_and_is_nothing_where_nothing_was_said() {
    let written = |text: &str| parse_scenario(text, "x.toml", &[]).unwrap().scenario.to_json();
    for text in ["[[flow]]", "[tcp]\nhz = 1000\n[[flow]]", "[[flow]]\ntcp = { ecn = false }"] {
        let json = written(&with(text));
        assert_eq!((json.get("tcp"), json["flow"][0].get("tcp")), (None, None), "{text}");
    }
    // As before `[tcp]` existed: three of the keys, and of the others only those that were given.
    let json = written(&with("[[flow]]\ntcp = { receive_buffer = \"256 kB\" }"));
    let expected =
        json!({"ecn": false, "nodelay": false, "cork": false, "receive_buffer": "256 kB"});
    assert_eq!((json.get("tcp"), &json["flow"][0]["tcp"]), (None, &expected));
    let named = parse_scenario(&with(LAYERED), "x.toml", &[]).unwrap();
    let again = scenario_from_json(&named.scenario.to_json().to_string(), "y.toml", &[]).unwrap();
    assert_eq!(again.scenario.to_json(), named.scenario.to_json());
    assert_eq!(experiment_of(&again).flows, experiment_of(&named).flows);
}

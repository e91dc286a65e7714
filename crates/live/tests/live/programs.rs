//! Tests of runs whose traffic comes from programs.

use crate::lab;
use skyhop_model::End;
use skyhop_path::Frame;
use skyhop_units::{Duration, Instant};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lab::LiveOutcome;
use crate::lab::{fixed, mbit, ms, probe, program, tcp};
use skyhop_engine::{Control, Unattended};
use skyhop_host::HostError;
use skyhop_live::LiveOptions;

/// Server command that sends the name of a connection's congestion control over it.
const SERVER: &str = "exec python3 -c 'import socket,sys\n\
    s=socket.create_server((\"{server}\",5201))\n\
    c,_=s.accept()\n\
    c.sendall(c.getsockopt(6,13,16).rstrip(b\"\\0\"))'";
/// Client script that writes its own congestion control and the server's to a file.
const CLIENT: &str = "import socket,sys,os\n\
    assert os.environ['SKYHOP_SERVER']==sys.argv[1]\n\
    c=socket.create_connection((sys.argv[1],5201),60)\n\
    own=c.getsockopt(6,13,16).rstrip(b'\\0').decode()\n\
    open(sys.argv[2],'w').write(own+' '+c.recv(100).decode())\n\
    sys.exit(7)";

fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("-c").arg("").status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        skyhop_needs::missing("programs", "there is no python3");
    }
    has
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("skyhop-live-{}-{name}", std::process::id()))
}

fn talk(default_cc: &str) -> Option<(LiveOutcome, String)> {
    let file = scratch(default_cc);
    let mut experiment = fixed(ms(10), mbit(50), ms(60_000));
    experiment.flows.extend([tcp(0, End::From, "cubic", None), probe(1, ms(20))]);
    let file_name = file.to_str().expect("a name in UTF-8");
    let client = ["python3", "-c", CLIENT, "{server}", file_name];
    let options = LiveOptions {
        program: Some(program(&client, Some(SERVER))),
        default_cc: default_cc.to_owned(),
        ..LiveOptions::default()
    };
    let outcome = lab::run_with(&experiment, &options)?;
    let written = fs::read_to_string(&file).expect("the client has written its file");
    fs::remove_file(&file).expect("the file can be removed");
    Some((outcome, written))
}

#[test]
fn client_and_server_talk_over_the_link_with_the_default_congestion_control() {
    if !has_python() {
        return;
    }
    // "reno" is allowed everywhere, "cubic" only where the host's root has allowed it.
    for cc in ["reno", "cubic"] {
        let Some((outcome, written)) = talk(cc) else { return };
        assert_eq!(written, format!("{cc} {cc}"));
        assert_eq!(outcome.program_status, Some(7));
        let summary = &outcome.data.summary;
        assert!(!summary.flows.is_empty(), "the program is the traffic");
        assert!(summary.flows.iter().all(|flow| flow.connection.is_some()), "{:?}", summary.flows);
        // The connection may be so short that only its destruction is reported.
        assert!(summary.flows.iter().all(|flow| [cc, "unseen"].contains(&flow.cc.as_str())));
        assert_eq!(summary.probes.len(), 1);
        assert!(summary.virtual_s < 60.0, "the run ends with the client");
    }
}

#[test]
fn a_program_that_outlives_a_path_that_changes_is_warned_about() {
    let unchanging = fixed(ms(10), mbit(50), ms(200));
    let mut experiment = unchanging.clone();
    let trace = Arc::make_mut(&mut experiment.links[0].trace);
    let later = trace.frames[0].clone();
    trace.frames.push(Frame { at: Instant::START + ms(100), ..later });
    let options = LiveOptions {
        program: Some(program(&["sh", "-c", "sleep 0.6; kill -9 $$"], None)),
        ..LiveOptions::default()
    };
    let Some(outcome) = lab::run_with(&experiment, &options) else { return };
    assert_eq!(outcome.program_status, Some(128 + 9));
    let warnings = &outcome.data.summary.warnings;
    assert!(warnings.iter().any(|warning| warning.contains("kept its last state")), "{warnings:?}");
    let Some(outcome) = lab::run_with(&unchanging, &options) else { return };
    let warnings = &outcome.data.summary.warnings;
    assert!(!warnings.iter().any(|warning| warning.contains("last state")), "{warnings:?}");
}

#[test]
fn programs_that_do_not_start_are_named() {
    let experiment = fixed(ms(10), mbit(50), ms(1000));
    let attempt = |client: &str, server: Option<&str>| {
        let program = Some(program(&[client], server));
        let options = LiveOptions { program, ..LiveOptions::default() };
        lab::allowed(lab::live(&experiment, &options, &mut Unattended))
    };
    let error = attempt("no-such-client", None).expect("nothing is set up yet").unwrap_err();
    assert!(error.to_string().contains("no-such-client"), "{error}");
    let Some(result) = attempt("true", Some("no-such-server -s")) else { return };
    let error = result.unwrap_err();
    assert!(error.to_string().contains("no-such-server"), "{error}");
    let Some(result) = attempt("true", Some("exit 3")) else { return };
    assert!(matches!(result, Err(HostError::ServerEnded { status: 3, .. })), "{result:?}");
}

/// Caller that interrupts the run at once.
struct InterruptAtOnce;

impl Control for InterruptAtOnce {
    fn progress(&mut self, _elapsed: Duration, _total: Duration) {}

    fn interrupted(&mut self) -> bool {
        true
    }
}

#[test]
fn an_interrupt_ends_client_and_server() {
    let experiment = fixed(ms(10), mbit(50), ms(60_000));
    let marker = format!("8641.{}", std::process::id());
    let options = LiveOptions {
        program: Some(program(&["sleep", &marker], Some("true"))),
        ..LiveOptions::default()
    };
    let result = lab::live(&experiment, &options, &mut InterruptAtOnce);
    let Some(result) = lab::allowed(result) else { return };
    let outcome = result.expect("what was measured");
    assert!(outcome.interrupted && outcome.program_status.is_none());
    assert!(outcome.data.summary.virtual_s < 60.0);
}

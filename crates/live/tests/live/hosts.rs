//! Tests that TCP settings of a run's hosts take effect in the kernel's sockets.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockaddrIn, connect, getsockopt, sockopt};
use skyhop_app::{App, TcpOptions};
use skyhop_engine::Engine;
use skyhop_experiment::Experiment;
use skyhop_host::device::{Device, DeviceKind};
use skyhop_host::frame::MTU;
use skyhop_host::namespace::{NetNamespace, TcpSettings};
use skyhop_host::{HostError, socket};
use skyhop_live::{LiveEngine, LiveOptions};
use skyhop_model::{BufferSizes, End, LiveDevice, Profile};
use skyhop_units::Bytes;

use crate::lab::{self, LiveOutcome, app, application, fixed, mbit, ms, program};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 84, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 84, 0, 2);

fn sizes(initial: u64, max: u64) -> BufferSizes {
    BufferSizes { initial: Bytes::new(initial), max: Bytes::new(max) }
}

/// Connect in a namespace with these settings; return the socket and its SYN.
fn connecting(tcp: &TcpSettings) -> Option<(OwnedFd, Vec<u8>)> {
    let made = (|| {
        let ends = [NetNamespace::create()?, NetNamespace::create()?];
        assert_eq!(ends[0].tune(tcp)?, Vec::<String>::new(), "all can be set here");
        let with_addresses: [(_, &[_]); 2] = [(&ends[0], &[HERE]), (&ends[1], &[THERE])];
        let devices = Device::create_pair(LiveDevice::Auto, DeviceKind::Tun, with_addresses)?;
        let socket = ends[0].inside(|| {
            let socket = socket::open()?;
            let there = SockaddrIn::from(std::net::SocketAddrV4::new(THERE, 9));
            assert_eq!(connect(socket.as_raw_fd(), &there), Err(Errno::EINPROGRESS));
            Ok::<_, HostError>(socket)
        })?;
        let mut packet = vec![0; MTU];
        let length = devices[0].read(&mut packet)?.expect("the SYN");
        packet.truncate(length);
        Ok((socket, packet))
    })();
    lab::allowed(made).map(|made| made.expect("a socket"))
}

/// Parse a SYN after an IP header of 20 bytes: kinds of its options, and its window scale.
fn options_of(syn: &[u8]) -> (Vec<u8>, u8) {
    let header = &syn[20..];
    assert_eq!(header[13], 2, "a SYN");
    let (mut rest, mut kinds, mut shift) = (&header[20..], Vec::new(), 0);
    while let Some(kind) = rest.first() {
        let length = if *kind == 1 { 1 } else { usize::from(rest[1]) };
        match kind {
            1 => {}
            3 => shift = rest[2],
            kind => kinds.push(*kind),
        }
        rest = &rest[length..];
    }
    (kinds, shift)
}

/// Option kinds: maximum segment size, SACK permitted, timestamps.
const MSS: u8 = 2;
const SACK: u8 = 4;
const TIMESTAMPS: u8 = 8;

#[test]
fn sockets_have_what_their_namespace_is_set_to() {
    let usual = TcpSettings::default();
    let rmem = sizes(50_000, 3_000_000);
    for (tcp, options, shift) in [
        (usual, vec![MSS, SACK, TIMESTAMPS], 10),
        (TcpSettings { timestamps: false, ..usual }, vec![MSS, SACK], 10),
        (TcpSettings { sack: false, ..usual }, vec![MSS, TIMESTAMPS], 10),
        (
            TcpSettings { rmem, wmem: sizes(30_000, 200_000), ..usual },
            vec![MSS, SACK, TIMESTAMPS],
            6,
        ),
    ] {
        let Some((socket, syn)) = connecting(&tcp) else { return };
        let (kinds, scale) = options_of(&syn);
        assert_eq!(kinds, options, "{tcp:?}");
        let has = |bytes: usize, asked: Bytes| assert_eq!(bytes as u64, asked.as_u64(), "{tcp:?}");
        has(getsockopt(&socket, sockopt::RcvBuf).unwrap(), tcp.rmem.initial);
        has(getsockopt(&socket, sockopt::SndBuf).unwrap(), tcp.wmem.initial);
        // The scale with which the header's 16 bits cover the largest buffer (net.core.rmem_max may require more).
        assert!(scale >= shift, "{tcp:?}: shifted by {scale}");
    }
}

/// Experiment with an endless flow, or an application from JSON, and these TCP options.
fn with_options(json: Option<&str>, options: TcpOptions) -> Experiment {
    let mut experiment = fixed(ms(50), mbit(100), ms(1500));
    let app = json.map_or_else(App::default, app);
    experiment.flows.push(application(0, End::From, "cubic", app, options));
    experiment
}

/// Congestion window between the end of the handshake and the first ACK of data, in packets.
fn first_cwnd(outcome: &LiveOutcome) -> i64 {
    let row = outcome.data.flows.iter().find(|row| row.t_ns >= 180_000_000);
    row.expect("samples").cwnd_packets
}

/// Check the window after an answer of seven segments: one of 40 is unchanged, one of 10 grows to at most 20.
#[test]
fn a_window_is_no_smaller_than_what_was_asked_for() {
    let answers = r#"{"kind": "request-response", "response": "10 kB", "think": "10 s"}"#;
    let greatest = |options| {
        let experiment = Experiment {
            network: None,
            sample: ms(10),
            duration: ms(700),
            ..with_options(Some(answers), options)
        };
        let outcome = lab::run(&experiment)?;
        outcome.data.flows.iter().map(|row| row.cwnd_packets).max()
    };
    let Some(usual) = greatest(TcpOptions::default()) else { return };
    let asked = greatest(TcpOptions { initial_cwnd: 40, ..TcpOptions::default() });
    assert!(usual <= 20 && asked == Some(40), "{usual}, {asked:?}");
}

#[test]
#[ignore = "soak: measures time"]
fn flows_begin_with_the_window_that_was_asked_for() {
    let asked = TcpOptions { initial_cwnd: 40, ..TcpOptions::default() };
    let answers = r#"{"kind": "request-response", "response": "10 kB", "think": "10 s"}"#;
    for json in [None, Some(answers)] {
        for (options, expected) in [(TcpOptions::default(), 10), (asked, 40)] {
            let experiment = Experiment { sample: ms(10), ..with_options(json, options) };
            let Some(outcome) = lab::run(&experiment) else { return };
            assert_eq!(first_cwnd(&outcome), expected, "{json:?}");
        }
    }
}

#[test]
#[ignore = "soak: measures time"]
fn a_window_that_may_not_grow_holds_the_sender_back() {
    let goodput = |options| {
        lab::run(&with_options(None, options)).map(|run| run.data.summary.flows[0].goodput_bps)
    };
    let Some(usual) = goodput(TcpOptions::default()) else { return };
    // 256 KiB per 100 ms, less Linux's overhead per packet.
    let small = TcpOptions { rmem: sizes(65_536, 262_144), ..TcpOptions::default() };
    let held = goodput(small).expect("as the first");
    assert!(held < 20_000_000 && usual > 30_000_000, "{held} and {usual} bit/s");
    let small = TcpOptions { wmem: sizes(16_384, 262_144), ..TcpOptions::default() };
    let held = goodput(small).expect("as the first");
    assert!(held < 20_000_000, "{held} and {usual} bit/s");
}

#[test]
fn options_of_another_kernel_give_a_warning_and_the_run_continues() {
    let options =
        TcpOptions { profile: Profile::Linux4_15, timer_wheel: false, ..Default::default() };
    let experiment = Experiment { duration: ms(500), ..with_options(None, options) };
    let Some(outcome) = lab::run(&experiment) else { return };
    let warnings = &outcome.data.summary.warnings;
    let told =
        |warning: &&String| warning.starts_with("[tcp] profile = \"linux-4.15\", timer_wheel");
    assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
    assert!(outcome.data.summary.flows[0].goodput_bps > 0);
}

#[test]
fn flows_that_want_different_hosts_are_refused_by_the_key() {
    let usual = TcpOptions::default();
    for (options, key) in [
        (TcpOptions { sack: false, ..usual }, "flow 1: tcp.sack: "),
        (TcpOptions { rmem: sizes(4096, 8192), ..usual }, "flow 1: tcp.rmem: "),
        (TcpOptions { initial_cwnd: 3, ..usual }, "flow 1: tcp.initial_cwnd: "),
    ] {
        let mut experiment = with_options(None, usual);
        let other = application(1, End::From, "cubic", App::default(), options);
        experiment.flows.push(other);
        let message = LiveEngine::default().check(&experiment).unwrap_err().to_string();
        assert!(message.starts_with(key) && message.contains("under [tcp]"), "{message}");
        // With a program, only [tcp] applies, to the program's connections.
        let engine = LiveEngine {
            options: LiveOptions { program: Some(program(&["true"], None)), ..Default::default() },
        };
        assert_eq!(engine.check(&experiment), Ok(()));
    }
}

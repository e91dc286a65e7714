//! Pieces over a socket: each arrives unchanged, wherever the stream of bytes is cut.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;

use skyhop_model::{Direction, LossReason, PhaseKind};
use skyhop_record::{
    EventRow, FlowSample, LinkSample, Piece, PieceReader, ProbeRow, RouteRow, RunData, RunHeader,
    SCHEMA_VERSION, Sink, StreamSink, Summary,
};
use skyhop_units::Instant;

fn pieces() -> Vec<Piece> {
    let at = Instant::from_nanos;
    let links = vec!["path".to_owned(), "second".to_owned()];
    let mut lost = LinkSample { link: 1, direction: Direction::Back, ..LinkSample::default() };
    lost.drops[LossReason::Outage] = 3;
    vec![
        Piece::Begin(RunHeader {
            schema: SCHEMA_VERSION,
            engine: "test".to_owned(),
            links,
            sites: vec!["London".to_owned()],
        }),
        Piece::Flows(vec![FlowSample { srtt_us: Some(31), ..FlowSample::default() }]),
        Piece::Link(vec![lost]),
        Piece::Events(vec![
            EventRow::lost(at(5), LossReason::Outage, (1, Direction::Back), Some(4)),
            EventRow::phase(PhaseKind::ProbeRtt, (at(6), at(9)), None),
        ]),
        Piece::Probes(vec![ProbeRow { seq: 8, rtt_ns: None, ..ProbeRow::default() }]),
        Piece::Routes(vec![RouteRow { satellites: vec![3, 9], ..RouteRow::default() }]),
        Piece::Run(serde_json::json!({ "engine": "test" })),
        Piece::Summary(Box::new(Summary { wall_s: 0.1 + 0.2, ..Summary::default() })),
    ]
}

#[test]
fn what_goes_into_a_socket_comes_out_of_it() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let sender = thread::spawn(move || {
        let mut sink = StreamSink::new(near);
        pieces().into_iter().for_each(|piece| sink.write(piece).unwrap());
    });
    let (mut reader, mut received, mut chunk) = (PieceReader::default(), Vec::new(), [0; 7]);
    loop {
        let length = far.read(&mut chunk).unwrap();
        reader.push(&chunk[..length]);
        while let Some(piece) = reader.next_message::<Piece>().unwrap() {
            received.push(piece);
        }
        if length == 0 {
            break;
        }
    }
    sender.join().unwrap();
    assert_eq!(received, pieces());
}

#[test]
fn a_reader_that_has_gone_is_an_error_and_no_crash() {
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let error = StreamSink::new(near).write(pieces().remove(0)).unwrap_err().to_string();
    assert!(error.contains("cannot pass on the measurements"), "{error}");
}

#[test]
fn pieces_in_memory_are_a_run() {
    let mut run = RunData::default();
    pieces().into_iter().for_each(|piece| run.write(piece).unwrap());
    assert_eq!((run.flows.len(), run.link.len(), run.events.len(), run.probes.len()), (1, 1, 2, 1));
    assert_eq!((run.link_name(0), run.link_name(1)), ("path", "second"));
    assert_eq!(run.run["engine"], "test");
}

//! Composition of a page, and the assignment of its objects to connections. Both ends compute the same plan.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use skyhop_model::MSS;
use skyhop_units::{Bytes, Duration};

use super::{MOST_OBJECTS, Page};

/// Sizes of a TLS handshake's messages, client's and server's. `HELLO` is for the first round trip: a
/// ClientHello padded to 512 B with its record header (RFC 7685), and a server's flight with a chain of
/// certificates. `FURTHER` is for each further round trip: a Finished and the messages that accompany it.
const HELLO: (Bytes, Bytes) = (Bytes::new(517), Bytes::new(4000));
const FURTHER: (Bytes, Bytes) = (Bytes::new(100), Bytes::new(100));

/// Cost of a round trip without data, in bytes, for the comparison of connections: an initial window of
/// ten segments.
const ROUND: u64 = 10 * MSS as u64;

/// Composition of one page.
#[derive(Debug)]
pub(super) struct Plan {
    /// Requests of each connection, in order; the document is on the first connection.
    pub(super) lanes: Vec<VecDeque<Exchange>>,
    /// Number of objects in addition to the document.
    pub(super) objects: u32,
    /// Think time of the user after the page.
    pub(super) think: Duration,
}

/// Request and its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) kind: ExchangeKind,
    pub(super) request: Bytes,
    pub(super) response: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    Handshake,
    Document,
    Object,
}

impl Plan {
    /// Draw the flow's page with this number.
    pub(super) fn of(page: &Page, seed: u64, number: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(number);
        // A draw may round to 0 B, and an answer of 0 B would never be complete.
        let one = Bytes::new(1);
        let (document, objects) = match page.listed.split_first() {
            Some((document, objects)) => (*document, objects.to_vec()),
            None => {
                let document = page.document.next(&mut rng).max(one);
                let count = page.objects.next(&mut rng).min(MOST_OBJECTS);
                (document, (0..count).map(|_| page.size.next(&mut rng).max(one)).collect())
            }
        };
        let count = objects.len() as u32;
        Self {
            lanes: lanes(page, document, objects),
            objects: count,
            think: page.think.next(&mut rng),
        }
    }
}

/// Assign each object to the connection that has the fewest bytes to fetch so far. A browser takes the
/// connection that becomes idle first, which is the same one if all connections are equally fast. Connections
/// without objects are never opened.
fn lanes(page: &Page, document: Bytes, objects: Vec<Bytes>) -> Vec<VecDeque<Exchange>> {
    let handshakes = (0..page.handshakes).map(|round| {
        let (request, response) = if round == 0 { HELLO } else { FURTHER };
        Exchange { kind: ExchangeKind::Handshake, request, response }
    });
    let mut lanes = vec![handshakes.collect::<VecDeque<_>>(); page.connections as usize];
    let exchange = |kind, response| Exchange { kind, request: page.request, response };
    lanes[0].push_back(exchange(ExchangeKind::Document, document));
    // The first connection is already open when the objects become known; the other connections must
    // first complete their handshakes.
    let opening = ROUND * u64::from(1 + page.handshakes);
    let mut costs = vec![opening; lanes.len()];
    costs[0] = 0;
    for size in objects {
        let cheapest = (0..costs.len()).min_by_key(|lane| costs[*lane]).unwrap_or(0);
        costs[cheapest] += size.as_u64() + ROUND / u64::from(page.parallel);
        lanes[cheapest].push_back(exchange(ExchangeKind::Object, size));
    }
    lanes.retain(|lane| lane.iter().any(|one| one.kind != ExchangeKind::Handshake));
    lanes
}

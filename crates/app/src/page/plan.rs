//! What a page is made of, and which connection fetches what: both ends work out the same.

use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use skyhop_model::MSS;
use skyhop_units::{Bytes, Duration};

use super::{MOST_OBJECTS, Page};

/// Of a TLS handshake, a ClientHello padded to 512 B and its record (RFC 7685), and a server's flight with a chain of
/// certificates; of round trips after the first, a Finished and what goes with it.
const HELLO: (Bytes, Bytes) = (Bytes::new(517), Bytes::new(4000));
const FURTHER: (Bytes, Bytes) = (Bytes::new(100), Bytes::new(100));

/// What a round trip without data costs a connection beside its bytes: an initial window of ten segments.
const ROUND: u64 = 10 * MSS as u64;

/// A page.
#[derive(Debug)]
pub(super) struct Plan {
    /// What each connection asks for, in its order. The first one's have the document.
    pub(super) lanes: Vec<VecDeque<Exchange>>,
    /// How many objects there are beside the document.
    pub(super) objects: u32,
    /// How long the user looks at it.
    pub(super) think: Duration,
}

/// A request and its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) what: What,
    pub(super) request: Bytes,
    pub(super) response: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Handshake,
    Document,
    Object,
}

impl Plan {
    /// The flow's page with this number.
    pub(super) fn of(page: &Page, seed: u64, number: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(number);
        // Draws may round to nothing, which nobody could wait for.
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

/// Gives each object to the connection that has least to fetch so far. A browser takes the one that is free first:
/// the same where all are equally fast. Connections that get nothing are never opened.
fn lanes(page: &Page, document: Bytes, objects: Vec<Bytes>) -> Vec<VecDeque<Exchange>> {
    let handshakes = (0..page.handshakes).map(|round| {
        let (request, response) = if round == 0 { HELLO } else { FURTHER };
        Exchange { what: What::Handshake, request, response }
    });
    let mut lanes = vec![handshakes.collect::<VecDeque<_>>(); page.connections as usize];
    let exchange = |what, response| Exchange { what, request: page.request, response };
    lanes[0].push_back(exchange(What::Document, document));
    // The first connection is there when the objects are known, the others have their handshakes before them.
    let opening = ROUND * u64::from(1 + page.handshakes);
    let mut costs = vec![opening; lanes.len()];
    costs[0] = 0;
    for size in objects {
        let cheapest = (0..costs.len()).min_by_key(|lane| costs[*lane]).unwrap_or(0);
        costs[cheapest] += size.as_u64() + ROUND / u64::from(page.parallel);
        lanes[cheapest].push_back(exchange(What::Object, size));
    }
    lanes.retain(|lane| lane.iter().any(|one| one.what != What::Handshake));
    lanes
}

//! Web pages: the client loads a document, then the objects that it refers to, over several connections or
//! with many requests on one connection.

mod client;
mod plan;
mod server;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration};

use crate::{AppKind, Application, Distribution, Draw, FlowFacts, Side};
use client::Client;
use server::Server;

/// Largest number of objects of a page.
const MOST_OBJECTS: u32 = 10_000;
const MOST_CONNECTIONS: u32 = 64;
const MOST_HANDSHAKES: u32 = 10;

/// Loads web pages: a document, then its objects.
///
/// By default sizes and number of objects follow Pries, Magyari and Tran-Gia, "An HTTP web traffic model
/// based on the top one million visited web pages" (NGI 2012, <https://doi.org/10.1109/NGI.2012.6252145>),
/// table II.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// Size of the document: a size above 0 B, or a table with its distribution.
    pub document: Draw<Bytes>,
    /// Number of objects that the document refers to, 0 to 10000: a number, or a table with its distribution.
    pub objects: Draw<u32>,
    /// Size of an object: a size above 0 B, or a table with its distribution.
    pub size: Draw<Bytes>,
    /// File with one size in bytes per line, in place of `document`, `objects` and `size`. The first
    /// size is the document's, the others are the objects'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Sizes listed in `file`, the document's first; set by the caller that opens files.
    #[serde(skip)]
    pub listed: Vec<Bytes>,
    /// Size of a request; above 0 B.
    pub request: Bytes,
    /// Largest number of connections per page, 1 to 64: 6 as browsers use over HTTP/1.1, 1 over HTTP/2.
    pub connections: u32,
    /// Largest number of outstanding requests per connection, 1 to 10000: 1 over HTTP/1.1, 100 or more over
    /// HTTP/2.
    pub parallel: u32,
    /// Round trips between a connection's TCP handshake and its first request, 0 to 10: 1 for TLS 1.3, 2 for
    /// TLS 1.2, 0 without TLS.
    pub handshakes: u32,
    /// Think time of the user between a page and the next: a duration, or a table with its distribution.
    pub think: Draw<Duration>,
    /// Number of pages. Default: no limit; pages are loaded until the flow's stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// Time after which an incomplete page has failed, and its connections are dropped; above 0 s.
    pub timeout: Duration,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            document: Draw::Drawn(Distribution::Weibull {
                scale: Bytes::new(28_243),
                shape: 0.814_944,
            }),
            // The mean is 31.9291 in the paper.
            objects: Draw::Drawn(Distribution::Exponential { mean: 32 }),
            // The median in the paper is exp(9.17979).
            size: Draw::Drawn(Distribution::Lognormal {
                median: Bytes::new(9_699),
                sigma: 1.246_46,
            }),
            file: None,
            listed: Vec::new(),
            request: Bytes::new(300),
            connections: 6,
            parallel: 1,
            handshakes: 1,
            think: Draw::Fixed(Duration::ZERO),
            pages: None,
            timeout: Duration::from_secs(60),
        }
    }
}

impl AppKind for Page {
    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Client::new(self.clone(), flow))
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        Box::new(Server::new(self, flow, connection))
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let (whole, drawn) =
            (Self::default(), "is given together with `file`, which lists the sizes; remove one");
        if self.file.is_some() {
            let others = [
                ("document", self.document == whole.document),
                ("objects", self.objects == whole.objects),
                ("size", self.size == whole.size),
            ];
            if let Some((key, _)) = others.into_iter().find(|(_, untouched)| !untouched) {
                return Err((key, drawn.to_owned()));
            }
        }
        for (key, size) in [
            ("document", self.document),
            ("size", self.size),
            ("request", Draw::Fixed(self.request)),
        ] {
            if size == Draw::Fixed(Bytes::ZERO) {
                return Err((key, "must be above 0 B".to_owned()));
            }
        }
        if let Draw::Fixed(objects) = self.objects {
            within("objects", objects, 0, MOST_OBJECTS)?;
        }
        within("connections", self.connections, 1, MOST_CONNECTIONS)?;
        within("parallel", self.parallel, 1, MOST_OBJECTS)?;
        within("handshakes", self.handshakes, 0, MOST_HANDSHAKES)?;
        if self.timeout == Duration::ZERO {
            return Err(("timeout", "must be above 0 s".to_owned()));
        }
        Ok(())
    }

    fn sends(&self) -> Side {
        Side::Server
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Pages)
    }
}

fn within(
    key: &'static str,
    value: u32,
    least: u32,
    most: u32,
) -> Result<(), (&'static str, String)> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err((key, format!("is {value}; expected {least} to {most}"))),
    }
}

impl Page {
    /// Parse a list of sizes, the document's first. They are the first column of a CSV file, in bytes or
    /// with a unit. A heading, and lines that begin with #, are skipped.
    ///
    /// # Errors
    /// A line is not a valid size, or there are too many sizes or none; the text states the problem
    /// and, if a line has it, the line's number.
    pub fn sizes_of(text: &str) -> Result<Vec<Bytes>, String> {
        let mut sizes = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let cell = line.split(',').next().unwrap_or_default().trim();
            let is_heading =
                sizes.is_empty() && !cell.starts_with(|first: char| first.is_ascii_digit());
            if cell.is_empty()
                || cell.starts_with('#')
                || (is_heading && cell.starts_with(char::is_alphabetic))
            {
                continue;
            }
            let size = cell.parse().map(Bytes::new).or_else(|_| cell.parse::<Bytes>());
            match size {
                Ok(size) if size > Bytes::ZERO && size <= MOST_SIZE => sizes.push(size),
                _ => {
                    return Err(format!(
                        "line {number}: {cell:?} is not the size of an object; expected 1 B to {MOST_SIZE}"
                    ));
                }
            }
            if sizes.len() > MOST_OBJECTS as usize + 1 {
                return Err(format!(
                    "line {number}: a page has a document and at most {MOST_OBJECTS} objects"
                ));
            }
        }
        match sizes.is_empty() {
            true => Err("contains no sizes; expected the document's on the first line".to_owned()),
            false => Ok(sizes),
        }
    }
}

/// Largest size of an object in a file.
const MOST_SIZE: Bytes = Bytes::new(10_000_000_000);

//! Table of the applications, and the enum of their keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Rate};

use crate::{
    AppKind, Application, Bulk, Call, ConstantRate, Dash, FlowFacts, OnOff, Page, Probe,
    RequestResponse, Side, Transport,
};

/// Generate code from the table: the enum of applications, which is read by its `kind`, the list of
/// names, and the dispatch to `AppKind`.
macro_rules! table {
    ($($(#[$attribute:meta])* $variant:ident = $name:literal, $summary:literal;)+) => {
        /// Application at the two ends of a flow: `app = { kind = "…", … }`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[schemars(tag = "kind")]
        pub enum App {
            $(#[doc = $summary] #[serde(rename = $name)] $(#[$attribute])* $variant($variant),)+
        }

        /// All applications, in the order of `skyhop list apps`.
        pub const APPS: &[AppEntry] = &[$(AppEntry { name: $name, summary: $summary }),+];

        impl App {
            /// Value of the key `kind`.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            fn kind(&self) -> &dyn AppKind {
                match self { $(Self::$variant(kind) => kind,)+ }
            }
        }
    };
}

table! {
    Bulk = "bulk", "sends as fast as TCP carries it, until the flow stops or a number of bytes is sent";
    OnOff = "on-off", "sends and pauses by turns, at a rate or as fast as TCP carries it";
    ConstantRate = "constant-rate", "sends messages of one size at regular intervals";
    RequestResponse = "request-response", "asks, waits for the answer, thinks, and asks again";
    Page = "page", "loads web pages: a document, then its objects, over several connections or many requests on one";
    Dash = "dash", "plays adaptive video: requests a film's chunks in order, in the tracks that a controller chooses";
    // In a scenario, probe and call are kinds of flows, not of `app`.
    #[schemars(skip)]
    Probe = "probe", "sends UDP packets that the other end echoes; its keys belong to a flow of kind = \"probe\"";
    #[schemars(skip)]
    Call = "call", "sends audio and video in both directions over UDP; its keys belong to a flow of kind = \"call\"";
}

/// Name and summary of an application, as `skyhop list apps` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppEntry {
    /// Value of the key `kind` in scenarios.
    pub name: &'static str,
    /// Description of the traffic in one line.
    pub summary: &'static str,
}

impl Default for App {
    fn default() -> Self {
        Self::Bulk(Bulk::default())
    }
}

impl AppKind for App {
    fn transport(&self) -> Transport {
        self.kind().transport()
    }

    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        self.kind().client(flow)
    }

    fn server(&self, flow: &FlowFacts, connection: u32) -> Box<dyn Application> {
        self.kind().server(flow, connection)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.kind().check()
    }

    fn sends(&self) -> Side {
        self.kind().sends()
    }

    fn read_rate(&self) -> Option<Rate> {
        self.kind().read_rate()
    }

    fn bytes(&self) -> Option<Bytes> {
        self.kind().bytes()
    }

    fn messages_per_s(&self) -> Option<f64> {
        self.kind().messages_per_s()
    }

    fn table(&self) -> Option<AppTable> {
        self.kind().table()
    }
}

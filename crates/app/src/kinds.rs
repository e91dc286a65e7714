//! The table of applications, and what a scenario says of one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Rate};

use crate::{
    Application, Bulk, Call, ConstantRate, Dash, FlowFacts, Kind, OnOff, Page, Probe,
    RequestResponse, Side, Transport,
};

/// Makes of the table an enum that is read by its `kind`, a list of names, and who does what is asked.
macro_rules! table {
    ($($(#[$attribute:meta])* $variant:ident = $name:literal, $summary:literal;)+) => {
        /// What the two ends of a flow do: `app = { kind = "…", … }`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[schemars(tag = "kind")]
        pub enum App {
            $(#[doc = $summary] #[serde(rename = $name)] $(#[$attribute])* $variant($variant),)+
        }

        /// Every application there is.
        pub const APPS: &[AppEntry] = &[$(AppEntry { name: $name, summary: $summary }),+];

        impl App {
            /// Its `kind`.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            fn kind(&self) -> &dyn Kind {
                match self { $(Self::$variant(kind) => kind,)+ }
            }
        }
    };
}

table! {
    Bulk = "bulk", "sends as fast as TCP carries it, without end or a number of bytes";
    OnOff = "on-off", "sends and pauses by turns, at a rate or as fast as TCP carries it";
    ConstantRate = "constant-rate", "sends messages of one size at even times";
    RequestResponse = "request-response", "asks, waits for the answer, thinks, and asks again";
    Page = "page", "loads web pages: a document, then its objects, over several connections or many requests on one";
    Dash = "dash", "plays adaptive video: a film's chunks one after the other, in the track that a controller chooses";
    // In a scenario these are kinds of flows.
    #[schemars(skip)]
    Probe = "probe", "sends UDP packets that come back at once; its keys stand in a flow of kind = \"probe\"";
    #[schemars(skip)]
    Call = "call", "audio and video both ways over UDP; its keys stand in a flow of kind = \"call\"";
}

/// An application as `skyhop list apps` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppEntry {
    /// Its `kind` in scenarios.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
}

impl Default for App {
    fn default() -> Self {
        Self::Bulk(Bulk::default())
    }
}

impl Kind for App {
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

//! How the table of controllers becomes code.

/// Makes of the table a list of names, and an enum over the parameters.
macro_rules! table {
    ($($variant:ident = $name:literal, $file:ident::$config:ident, $summary:literal;)+) => {
        $(pub use $file::$config;)+

        /// Every controller there is.
        pub const CONTROLLERS: &[ControllerEntry] = &[$(ControllerEntry {
            name: $name,
            summary: $summary,
            default: || ControllerChoice::$variant($config::default()),
        }),+];

        /// A controller with its parameters: in files its name, or a table with the name as `kind` and those parameters that
        /// are not as published.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ControllerChoice {
            $(#[doc = $summary] $variant($config)),+
        }

        impl ControllerChoice {
            /// Its name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            fn parameters(&self) -> &dyn Parameters {
                match self { $(Self::$variant(config) => config),+ }
            }
        }

        /// The table in a file.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind")]
        #[schemars(rename = "ControllerTable")]
        enum Table {
            $(#[doc = $summary] #[serde(rename = $name)] $variant($config)),+
        }

        impl From<Table> for ControllerChoice {
            fn from(table: Table) -> Self {
                match table { $(Table::$variant(config) => Self::$variant(config)),+ }
            }
        }

        impl From<ControllerChoice> for Table {
            fn from(choice: ControllerChoice) -> Self {
                match choice { $(ControllerChoice::$variant(config) => Self::$variant(config)),+ }
            }
        }
    };
}

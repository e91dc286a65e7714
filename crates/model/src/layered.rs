//! Optional keys that several tables may give, one of which takes precedence, and the values after defaults.

/// Define a struct of optional keys and a struct of their values: each value is the key's own, or else the default
/// given here, whose expression may use keys above it. A value that may be given in parts names the type of its keys
/// in brackets, a type with `or` and `values` of its own.
#[macro_export]
macro_rules! layered {
    ($(#[$meta:meta])* $keys:ident => $(#[$values_meta:meta])* $values:ident {
        $($(#[$doc:meta])* $key:ident: $type:ty $([$parts:ty])? = $default:expr,)+
    }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(deny_unknown_fields, expecting = "a table")]
        pub struct $keys {
            $($(#[$doc])* pub $key: Option<$crate::layered!(@keys $type $(, $parts)?)>,)+
        }

        #[doc = concat!("Values of [`", stringify!($keys), "`] after defaults.")]
        $(#[$values_meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(default)]
        pub struct $values { $($(#[$doc])* pub $key: $type,)+ }

        impl $keys {
            /// Return the keys of `self`, completed by the keys that only `others` gives.
            pub fn or(self, others: Self) -> Self {
                Self { $($key: $crate::layered!(@or self.$key, others.$key $(, $parts)?),)+ }
            }

            /// Return the values, with defaults for the keys that are not given.
            pub fn values(&self) -> $values {
                $(let $key = $crate::layered!(@value self.$key.clone(), $default $(, $parts)?);)+
                $values { $($key,)+ }
            }
        }

        impl Default for $values {
            fn default() -> Self {
                $keys::default().values()
            }
        }
    };
    (@keys $type:ty) => { $type };
    (@keys $type:ty, $parts:ty) => { $parts };
    (@or $one:expr, $other:expr) => { $one.or($other) };
    (@or $one:expr, $other:expr, $parts:ty) => {
        match ($one, $other) {
            (Some(one), Some(other)) => Some(<$parts>::or(one, other)),
            (one, other) => one.or(other),
        }
    };
    (@value $given:expr, $default:expr) => { $given.unwrap_or_else(|| $default) };
    (@value $given:expr, $default:expr, $parts:ty) => {
        <$parts>::values($given.unwrap_or_default(), $default)
    };
}

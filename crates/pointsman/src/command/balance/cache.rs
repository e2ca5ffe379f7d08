//! Answers that a running balancer gives again, forgotten before their time.

use api::Forgotten;
use clap::Args;
use hyper::Method;
use web::client::{Call, segment};

use super::Connection;
use crate::failure::Failure;

/// What is to be forgotten.
#[derive(Args, Debug)]
pub(super) struct Forget {
    /// The name; everything where not given
    name: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Forget {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let name = self.name.map(|name| "/".to_owned() + &segment(&name));
        let call = Call::new(Method::DELETE, "/v1/cache".to_owned() + &name.unwrap_or_default());
        self.connection.begin()?.show(call, shown).await
    }
}

fn shown(Forgotten { answers }: Forgotten) -> String {
    match answers {
        1 => "1 answer forgotten".into(),
        _ => format!("{answers} answers forgotten"),
    }
}

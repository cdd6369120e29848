"""What a client does with a message."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import Net, load_data
from quickstart.task import test as test_model
from quickstart.task import train as train_model

app = ClientApp()


def prepare(msg: Message, context: Context):
    """Return the model that came with a message, and the client's data."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    node, run = context.node_config, context.run_config
    nodes = node["partition-id"], node["num-partitions"]
    return net, *load_data(*nodes, run["num-samples"], run["alpha"], run["batch-size"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on the client's data."""
    net, loader, _ = prepare(msg, context)
    run = context.run_config
    loss = train_model(net, loader, run["local-epochs"], run["learning-rate"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    arrays = ArrayRecord(net.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test on what the client kept back."""
    net, _, loader = prepare(msg, context)
    loss, accuracy = test_model(net, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)

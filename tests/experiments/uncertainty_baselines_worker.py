"""Trains a network of Uncertainty Baselines; prints the losses as JSON.

In a process of its own: that package's models are of the older Keras, which
TensorFlow takes for `tf.keras` where TF_USE_LEGACY_KERAS=1 is set.
"""

import json

import tensorflow as tf

from caltrain_tf.experiments.uncertainty_baselines import objective

STEPS = 12


def main():
    import uncertainty_baselines as ub

    tf.random.set_seed(0)
    labels = tf.tile(tf.range(4), [8])
    noise = tf.random.stateless_normal([32, 32, 32, 3], [0, 1])
    images = noise + tf.cast(labels, tf.float32)[:, None, None, None]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = ub.models.wide_resnet(
            input_shape=(32, 32, 3),
            depth=10,
            width_multiplier=1,
            num_classes=4,
            l2=2e-4,
            hps=None,
            seed=0,
        )
        schedule = ub.schedules.WarmUpPiecewiseConstantSchedule(
            STEPS, 0.1, decay_ratio=0.2, decay_epochs=[9], warmup_epochs=0
        )
        optimizer = tf.keras.optimizers.SGD(schedule, 0.9, nesterov=True)
    loss_fn = objective("focal", "sb_ece", beta=1.0)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            value = loss_fn(labels, model(images, training=True))
            total = value + sum(model.losses)
            scaled = total / strategy.num_replicas_in_sync
        variables = model.trainable_variables
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    @tf.function
    def step():
        return strategy.run(replica_step, args=(images, labels))

    losses = [float(step()) for _ in range(STEPS)]
    kind = type(model).__module__.partition(".")[0]
    print(json.dumps({"losses": losses, "keras": kind}))


if __name__ == "__main__":
    main()
